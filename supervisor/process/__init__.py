"""Owns families of processes: spawns them, stops them, proves that they are gone.

`Custody` holds all instances of a daemon; an `Instance` is the shell around the pure machine in
`core/shutdown.py`; a `Family` is its hands: pipes, pidfds, the control socket of its relay.
"""
