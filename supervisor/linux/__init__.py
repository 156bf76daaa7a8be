"""The one home of kernel calls: pipes, processes, signals, sockets, locks.

Each function is a thin, typed cover of a system call or of psutil. Nothing is decided here.
"""
