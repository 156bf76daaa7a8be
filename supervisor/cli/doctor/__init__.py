"""What `mcpctl doctor` looks at: one module for each thing, each answering findings.

Loaded by that command only. Everything is read, nothing is changed, and no daemon is needed.
"""
