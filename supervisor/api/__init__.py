"""The control API: HTTP on a Unix socket, over a `Control` that somebody else implements.

It translates and decides nothing; what a stop or a start means is the manager's.
"""
