"""The program `mcp-supervisord`: what surrounds the manager and the API from start to exit.

It knows the order of a start and of a stop, and decides nothing about servers.
"""
