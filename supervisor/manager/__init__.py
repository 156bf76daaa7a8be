"""Servers, sessions and instances as the API knows them, on top of custody.

What may be started, what joins what, and what is kept of the past stands here; how processes are
held and stopped does not.
"""
