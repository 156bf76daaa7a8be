"""The program `mcpctl`: what people and MCP clients type.

It prints what the daemon answers and turns outcomes into exit codes; it decides nothing. The shim
(`mcpctl connect`) loads none of the rest.
"""
