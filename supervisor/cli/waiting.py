"""What a long wait shows: what is waited for, and the deadline running down.

Written to stderr, and only where that is a terminal. Whether or not anybody watches, the daemon is
asked for its instances at each tick: one that hangs is found out, however long a stop may take.
"""

import sys
from collections.abc import Callable
from typing import Self

from supervisor.cli.tables import span
from supervisor.client.bodies import Instance
from supervisor.client.client import Client


class Interrupted(Exception):  # noqa: N818 - not an error: somebody pressed ^C
    """Somebody did not want to wait any longer; the text says what goes on without them."""


class Countdown:
    """Called while a request waits; a context manager that wipes its line at the end."""

    def __init__(
        self,
        client: Client,
        what: str,
        matches: Callable[[Instance], bool],
        *,
        goes_on: str,
    ) -> None:
        self._client = client
        self._what = what
        self._matches = matches
        self._goes_on = goes_on
        self._shown = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            raise Interrupted(self._goes_on)

    def __call__(self, waited_s: float) -> None:
        """Ask how far it is, and show it."""
        # raises when the daemon does not answer, which ends the wait
        instances = self._client.instances().value["instances"]
        if not sys.stderr.isatty():
            return
        text = self._progress([i for i in instances if self._matches(i)], waited_s)
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()
        self._shown = True

    def _progress(self, instances: list[Instance], waited_s: float) -> str:
        stops = [i["stop"] for i in instances if i["stop"] is not None]
        if not stops:
            return f"waiting for {self._what}, {span(waited_s)} so far"
        last = max(stops, key=lambda stop: stop["deadline_in_s"])
        many = f", {len(stops)} instances" if len(stops) > 1 else ""
        left = f"deadline in {last['deadline_in_s']:.1f} s"
        return f"waiting for {self._what}: {last['stage']}{many}, {left}"
