"""Talks to a running daemon over its sockets, for the command line and for scripts.

Synchronous and light: the standard library only, and of it what is cheap to load. No third-party
import, no configuration, no decision: what the daemon answers is handed on as it is.
"""
