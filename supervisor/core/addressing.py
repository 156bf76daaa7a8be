"""Decides which client a request of a server is for.

A server that asks (for a sample, for roots, for a person's input) does not say whom: over stdio it
knows one client. Where several are attached, a question must reach the one that caused it or
nobody: an answer of somebody else's would cross sessions.

Source: design section 9.
"""

from collections.abc import Collection

NOBODY = "no client is attached to this server"
SEVERAL = "several clients are attached and it cannot be told which one of them this is for"


def choose_client(attached: Collection[int], calling: Collection[int]) -> int | str:
    """Choose the client for a request of the server.

    Args:
        attached: all clients.
        calling: those of them with a request in flight.

    Returns:
        The only client attached, else the only one that is calling; else why it is nobody's.
    """
    for candidates in (attached, calling):
        if len(candidates) == 1:
            return next(iter(candidates))
    return SEVERAL if attached else NOBODY
