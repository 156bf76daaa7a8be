"""Names of tools: safe for every model API, unique, and never another server's."""

import re
import time
from random import Random

import hypothesis.strategies as st
import pytest
from hypothesis import given

from supervisor.core.ids import ServerName
from supervisor.core.tool_names import (
    MAX_NAME,
    MAX_SERVER,
    name_servers,
    name_tools,
    servers_of,
)

SAFE = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")

# few characters that fold together, so that collisions are the rule
WORDS = st.text(alphabet="aA.:-_ 7é", max_size=5) | st.text(
    alphabet="xX.", min_size=28, max_size=70
)
PAIRS = st.lists(st.tuples(WORDS, WORDS), unique=True, max_size=25)


@pytest.mark.parametrize(
    ("tool", "full"),
    [
        (("files", "read"), "files__read"),
        (("12306", "query"), "mcp-12306__query"),
        (("files", "2024-query"), "files__tool-2024-query"),
        (("../evil", "read.file"), "mcp----evil__read-file"),
        (("files", "_hidden"), "files__tool-_hidden"),
        ((" files ", "a b"), "files__a-b"),
        (("s" * 40, "t" * 80), "s" * 30 + "__" + "t" * 32),
        (("", ""), "mcp-__tool-"),
    ],
)
def test_a_name_is_made_safe(tool: tuple[str, str], full: str) -> None:
    """Model APIs take 64 letters, digits, `_` and `-`, with a letter first."""
    assert name_tools([tool]) == [full]


def test_a_server_whose_name_folds_into_another_ones_gets_a_number() -> None:
    """Case is ignored, since clients fold names for files and labels."""
    assert name_servers(["vigil:harbor", "vigil-harbor"]) == {
        "vigil-harbor": "vigil-harbor",
        "vigil:harbor": "vigil-harbor-2",
    }
    named = name_servers(["my.server", "my_server", "My.Server", "my:Server"])
    assert len({prefix.lower() for prefix in named.values()}) == 4


def test_a_number_is_made_room_for() -> None:
    """The base is cut so that the whole still fits."""
    named = name_servers(["s" * 30 + "a", "s" * 30 + "b"])
    assert sorted(named.values()) == ["s" * 28 + "-2", "s" * 30]


def test_tools_that_fold_together_stay_apart() -> None:
    """A call must reach the tool that was meant."""
    tools = [("files", name) for name in ("read-file", "read_file", "read.file")]
    assert name_tools(tools) == ["files__read-file", "files__read_file", "files__read-file-2"]


def test_a_server_that_lists_nothing_keeps_its_prefix_from_its_neighbour() -> None:
    """While `a.b` is down, a client that knows its tool `a-b__t` must not reach `a:b`."""
    both = name_tools([("a.b", "t"), ("a:b", "t")])
    assert both == ["a-b__t", "a-b-2__t"]
    assert name_tools([("a:b", "t")], servers=["a.b", "a:b"]) == [both[1]]


def test_a_separator_inside_a_server_name_makes_no_double() -> None:
    """`a` + `b__c` and `a__b` + `c` read alike."""
    assert len(set(name_tools([("a", "b__c"), ("a__b", "c")]))) == 2


def test_thousands_of_names_that_look_alike_hold_nobody_up() -> None:
    """A listing has up to 16384 items, and names are made in the daemon's only thread."""
    tools = [("s", "x" + chr(0x4E00 + number)) for number in range(16000)]
    before = time.process_time()
    names = name_tools(tools)
    assert time.process_time() - before < 5  # it took more than a minute
    assert len(set(names)) == len(tools)


@given(PAIRS)
def test_names_are_safe_and_unique(tools: list[tuple[str, str]]) -> None:
    """Also where case is ignored, and the server's part within its bound."""
    names = name_tools(tools)
    assert len({name.lower() for name in names}) == len(tools)
    assert all(SAFE.fullmatch(name) and len(name) <= MAX_NAME for name in names)
    prefixes = name_servers(server for server, _ in tools)
    assert all(len(prefix) <= MAX_SERVER for prefix in prefixes.values())
    for (server, _), name in zip(tools, names, strict=True):
        assert name.startswith(prefixes[server] + "__")


@given(PAIRS, st.randoms(use_true_random=False))
def test_names_do_not_depend_on_the_order_of_the_answers(
    tools: list[tuple[str, str]], random: Random
) -> None:
    """Servers are asked side by side; a model's prompt stays the same."""
    named = dict(zip(tools, name_tools(tools), strict=True))
    shuffled = list(tools)
    random.shuffle(shuffled)
    assert dict(zip(shuffled, name_tools(shuffled), strict=True)) == named


@given(PAIRS)
def test_a_prefix_does_not_depend_on_who_answers(tools: list[tuple[str, str]]) -> None:
    """One server's silence renames no tool to another server's prefix."""
    servers = {server for server, _ in tools}
    prefixes = name_servers(servers)
    for server in servers:
        own = [pair for pair in tools if pair[0] == server]
        assert all(
            name.startswith(prefixes[server] + "__") for name in name_tools(own, servers=servers)
        )


# servers whose prefixes begin with one another's, so that a name may belong to several
NESTED = st.sampled_from(["a", "a__b", "A__B", "a__b-2", "c"])
NESTED_TOOLS = st.sampled_from(["b", "b__x", "x", "X", "x-2", "b-2__x", "b__x-2", "x" * 64])


@given(st.lists(st.tuples(NESTED | WORDS, NESTED_TOOLS | WORDS), unique=True, max_size=25))
def test_a_name_keeps_its_meaning_when_only_the_servers_that_may_have_it_are_asked(
    tools: list[tuple[str, str]],
) -> None:
    """A call of one server's tool starts that server, and not all that are configured."""
    servers = sorted({ServerName(server) for server, _ in tools})
    for full, tool in zip(name_tools(tools), tools, strict=True):
        asked = [pair for pair in tools if pair[0] in servers_of(full, servers)]
        assert dict(zip(name_tools(asked, servers), asked, strict=True))[full] == tool
