"""Talks to a running daemon over its sockets: for the command line, for scripts and for agents.

`client.py` is synchronous and light, for `mcpctl`: the standard library only, and of it what is
cheap to load. `aio.py` is for agents and loads what it likes; nothing else here imports it. No
configuration, no decision: what the daemon answers is handed on as it is.
"""
