"""What a session has of a server: its handshake, its catalogue, its calls.

It asks through `transport` and does not know whether a process or a network is behind it.
"""
