"""Reads the configuration files into values that are already right.

Finds every problem of all files at once, and says what can keep one single server from starting.
Writes nothing, starts nothing, and never shows a secret.
"""
