"""The daemon as an MCP server: whole sessions, for clients that speak MCP.

It speaks the protocol and decides nothing: what there is to list and to call is the runtime's.
"""
