"""What the daemon says about itself: log lines, and events that can be followed.

It records and decides nothing; no other layer formats or masks.
"""
