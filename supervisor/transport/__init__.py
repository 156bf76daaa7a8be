"""What carries JSON-RPC between the daemon and a server: lines, ids, and who is meant by them.

It knows processes by their pipes and their end; it does not start, stop or choose any.
"""
