"""One owner of families for all cells of a module: what one cell leaves would disturb the next."""

from collections.abc import Iterator

import pytest

from truth_table.hosting import Host


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A host whose relays come from the fork server."""
    with Host(tmp_path_factory.mktemp("records"), "forked") as started:
        yield started


@pytest.fixture(scope="module")
def executing_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A host that has no fork server and execs each relay."""
    with Host(tmp_path_factory.mktemp("records"), "executed") as started:
        yield started
