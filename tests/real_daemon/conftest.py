"""Fixtures: a daemon of one's own, or one that the tests of a module share."""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from ground_truth import GroundTruth
from real_daemon.daemon_fixture import Daemon

StartDaemon = Callable[..., Daemon]


@pytest.fixture
def start_daemon() -> Iterator[StartDaemon]:
    """Start daemons with the arguments of `Daemon`; at the end each must leave nothing."""
    with ExitStack() as stack:

        def start(records: Mapping[str, Mapping[str, Any]], **options: Any) -> Daemon:  # noqa: ANN401 - handed on
            home = stack.enter_context(tempfile.TemporaryDirectory(prefix="mcpd-"))
            truth = stack.enter_context(GroundTruth())
            return stack.enter_context(Daemon(truth, Path(home), records, **options))

        yield start


@pytest.fixture
def stopped_daemon() -> Iterator[StartDaemon]:
    """The same for daemons that the test starts itself, perhaps more than once."""
    with ExitStack() as stack:

        def make(records: Mapping[str, Mapping[str, Any]], **options: Any) -> Daemon:  # noqa: ANN401 - handed on
            home = stack.enter_context(tempfile.TemporaryDirectory(prefix="mcpd-"))
            truth = stack.enter_context(GroundTruth())
            daemon = Daemon(truth, Path(home), records, **options)

            def end() -> None:
                problems = daemon.end()
                if problems:
                    pytest.fail("\n".join(problems), pytrace=False)

            stack.callback(end)
            return daemon

        yield make
