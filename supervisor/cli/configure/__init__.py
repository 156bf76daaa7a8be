"""What the commands on the configuration do: show it, change it, take it over, hand it on.

Only `commands` and `exchange` are loaded with the program; they load the rest when they run.
No daemon is needed; files are changed by `config.editing` and nowhere else.
"""
