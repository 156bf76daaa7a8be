"""The measurements of `scripts/bench`: our numbers beside a named peer's, taken in one run.

A measurement starts real processes, alternates ours and the peer's, and gives rows. It judges
nothing: each row carries its bound, and people or `--check` read it.
"""
