"""One rule for references in every field, and no surprise beside it."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from supervisor.config.references import expand, expand_home

ENVIRON = {"HOME": "/home/app", "EMPTY": "", "TRICKY": "${HOME}", "lower_1": "l"}


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("${HOME}/x", "/home/app/x"),
        ("a${HOME}b${lower_1}", "a/home/appbl"),
        ("${NOT_SET:-fallback}", "fallback"),
        ("${NOT_SET:-}", ""),
        ("${NOT_SET:-a:-b}", "a:-b"),
        ("${NOT_SET:-two\nlines}", "two\nlines"),
        ("${EMPTY}", ""),
        ("${EMPTY:-full}", "full"),
        ("${HOME:-other}", "/home/app"),
        ("$${HOME}", "${HOME}"),
        ("$${NOT_SET:-x}", "${NOT_SET:-x}"),
        ("$$${HOME}", "$${HOME}"),
        ("${TRICKY}", "${HOME}"),
        ("$${HOME}${HOME}", "${HOME}/home/app"),
    ],
)
def test_a_reference_becomes_its_value(text: str, expanded: str) -> None:
    """Values are not looked at again, and an escape loses exactly one dollar sign."""
    result = expand(text, ENVIRON)

    assert result.text == expanded
    assert result.missing == result.nested == ()


@pytest.mark.parametrize(
    "text",
    ["5$", "$HOME", "$", "${", "${}", "${1A}", "${HOME", "${A-b}", "${x%y}", "${ HOME }", "{HOME}",
     "$${", "$$", "${HÖME}", "${HOME:=x}", "~", "%HOME%"],
)  # fmt: skip
def test_what_is_no_reference_stays_as_it_is(text: str) -> None:
    """Prices and snippets for a shell are no references."""
    assert expand(text, ENVIRON).text == text


def test_a_variable_that_is_not_set_is_reported_and_never_becomes_nothing() -> None:
    """An empty token makes a server fail later, far from the cause."""
    result = expand("${GONE}-${HOME}-${GONE}-${LOST}", ENVIRON)

    assert result.missing == ("GONE", "LOST")
    assert result.text == "${GONE}-/home/app-${GONE}-${LOST}"


def test_a_reference_inside_a_default_is_reported() -> None:
    """Half of it would be taken for the default, and the rest for text."""
    result = expand("${A:-${HOME}}", ENVIRON)

    assert result.nested == ("A",)
    assert result.text == "${A:-${HOME}}"


def test_the_variables_that_were_used_are_known() -> None:
    """Their values are what must be masked; defaults stand in the file anyway."""
    result = expand("${HOME} ${NOT_SET:-x} ${EMPTY} $${TRICKY}", ENVIRON)

    assert dict(result.values) == {"HOME": "/home/app", "EMPTY": ""}
    assert "/home/app" not in repr(result)


@pytest.mark.parametrize(
    ("text", "expanded"),
    [("~", "/h"), ("~/x", "/h/x"), ("~/", "/h/"), ("~user/x", "~user/x"), ("a~", "a~"),
     ("", ""), ("--db=~/x", "--db=~/x"), ("~~", "~~")],
)  # fmt: skip
def test_only_a_leading_tilde_is_the_home_directory(text: str, expanded: str) -> None:
    """The same in command, args, cwd and env; `~user` would need the passwd database."""
    assert expand_home(text, "/h") == expanded
    assert expand_home("~/x", "/") == "/x"


PIECES = st.sampled_from(
    ["$", "{", "}", "${", ":-", "A", "NOT_SET", "_1", "${A}", "$${A}", "é", "\n"]
)
TEXTS = st.lists(PIECES, max_size=12).map("".join) | st.text(max_size=20)
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True)


@given(TEXTS, st.dictionaries(NAMES, TEXTS, max_size=3))
def test_any_text_expands_to_something(text: str, environ: dict[str, str]) -> None:
    """Whatever a file says, expanding neither fails nor hides what is missing."""
    result = expand(text, environ)

    assert not set(result.missing) & environ.keys()
    if "${" not in text:
        assert result.text == text
    for name in result.missing:
        assert f"${{{name}}}" in result.text


@given(TEXTS, NAMES, TEXTS, TEXTS)
def test_an_escaped_reference_comes_out_as_it_was_meant(
    before: str, name: str, value: str, after: str
) -> None:
    """`$${X}` is the text `${X}`, whether or not X is set, and expands no further."""
    literal = f"${{{name}}}"
    around = before.replace("$", ""), after.replace("$", "")

    for environ in ({}, {name: value}):
        assert expand(f"${literal}", environ).text == literal
        whole = expand(f"{around[0]}${literal}{around[1]}", environ)
        assert whole.text == f"{around[0]}{literal}{around[1]}"
        assert whole.missing == ()


@given(NAMES, TEXTS, TEXTS)
def test_a_set_variable_wins_over_its_default(name: str, value: str, default: str) -> None:
    """And the default is used exactly when there is nothing, as in the shell."""
    default = default.replace("}", "").replace("{", "")

    text = expand(f"${{{name}:-{default}}}", {name: value}).text

    assert text == (value or default)
