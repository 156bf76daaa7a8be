"""Tests of the real daemon: real processes and sockets, the real `mcpctl`, the real SDK client.

Nothing of the program is replaced or imported here, so that what is tested is what people run.
"""
