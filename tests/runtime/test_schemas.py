"""Arguments and structured results against the schemas of their tools: what is said about them."""

import pytest
from pydantic import JsonValue

from supervisor.core.ids import ServerName
from supervisor.core.tool_errors import (
    ArgumentsInvalidError,
    ResultInvalidError,
    SchemaUnusableError,
)
from supervisor.runtime.schemas import MAX_KEPT, SchemaChecker, Unchecked

pytestmark = pytest.mark.anyio

DRAFT_7 = "http://json-schema.org/draft-07/schema#"


def checker() -> SchemaChecker:
    """For a connection that is new."""
    return SchemaChecker(ServerName("files"))


async def errors_of(schema: JsonValue, arguments: JsonValue) -> tuple[str, ...]:
    """What is said about arguments that do not match."""
    with pytest.raises(ArgumentsInvalidError) as caught:
        await checker().check_arguments("read", schema, arguments)
    return caught.value.errors


async def why_unusable(schema: JsonValue) -> str:
    """What is said about a schema that cannot be used."""
    with pytest.raises(SchemaUnusableError) as caught:
        await checker().check_arguments("read", schema, {})
    return caught.value.why


async def is_accepted(schema: JsonValue, value: JsonValue) -> bool:
    """Whether the value matches; that it was looked at is asserted."""
    try:
        assert await checker().check_result("read", schema, value) is None
    except ResultInvalidError:
        return False
    return True


async def test_the_message_names_server_tool_place_and_what_was_expected() -> None:
    """A model that sent the wrong arguments has nothing but this sentence to mend them."""
    schema: JsonValue = {
        "type": "object",
        "properties": {"rows": {"items": {"properties": {"id": {"type": "integer"}}}}},
    }
    with pytest.raises(ArgumentsInvalidError) as caught:
        await checker().check_arguments("read", schema, {"rows": [{"id": 1}, {"id": "x"}]})

    assert str(caught.value) == (
        "The arguments for tool 'read' of server 'files' do not match its inputSchema: "
        "$.rows[1].id has to be integer."
    )
    assert (caught.value.server, caught.value.tool) == ("files", "read")


async def test_a_result_is_the_servers_fault_and_arguments_are_the_callers() -> None:
    """Whose turn it is to act decides what a client is told."""
    with pytest.raises(ResultInvalidError, match="outputSchema"):
        await checker().check_result("read", {"type": "object"}, [])
    with pytest.raises(ArgumentsInvalidError, match="inputSchema"):
        await checker().check_arguments("read", {"type": "object"}, [])


@pytest.mark.parametrize(
    ("schema", "value", "said"),
    [
        ({"type": ["string", "null"]}, 1, "$ has to be null or string"),
        ({"required": ["path"]}, {}, "$ lacks the member 'path'"),
        ({"additionalProperties": False}, {"a": 1}, "$ has unknown members"),
        (
            {"additionalProperties": False, "properties": {"x": {}}},
            {"a b": 1},
            "$ has unknown members: 'a b'",
        ),
        ({"enum": ["a", 2]}, "b", "$ has to be one of 'a', 2"),
        ({"const": 5}, 6, "$ has to be 5"),
        ({"minimum": 5}, 1, "$ has to be at least 5"),
        ({"maxLength": 2}, "abc", "$ may have at most 2 characters"),
        ({"pattern": "^b"}, "a", "$ has to match the pattern '^b'"),
        ({"anyOf": [{"type": "null"}]}, 1, "$ matches none of the allowed forms (anyOf)"),
        ({"oneOf": [True, True]}, 1, "$ matches more than one of the allowed forms (oneOf)"),
        ({"oneOf": [False, False]}, 1, "$ matches none of the allowed forms (oneOf)"),
        ({"properties": {"a b": False}}, {"a b": 1}, "$['a b'] is not allowed"),
        ({"dependentRequired": {"a": ["b"]}}, {"a": 1}, "$ lacks the member 'b'"),
    ],
)
async def test_each_kind_of_error_says_what_was_expected(
    schema: JsonValue, value: JsonValue, said: str
) -> None:
    """The words of the schema's author come from the schema, those of the value do not appear."""
    assert await errors_of(schema, value) == (said,)


async def test_three_errors_are_shown_and_the_others_counted() -> None:
    """A list of hundreds would bury what matters."""
    schema: JsonValue = {"items": {"type": "string"}}
    with pytest.raises(ArgumentsInvalidError, match="; and 4 more") as caught:
        await checker().check_arguments("read", schema, list(range(7)))

    assert len(caught.value.errors) == 3
    assert caught.value.more == 4


async def test_no_value_and_no_secret_appears_in_a_message() -> None:
    """Arguments may hold passwords; messages go to logs and to other people's screens."""
    schema: JsonValue = {
        "properties": {
            "password": {"const": "hunter2-in-schema"},
            "text": {"type": "integer"},
            "url": {"enum": ["https://user:pa55word@host/"]},
        },
        "additionalProperties": False,
    }
    value: JsonValue = {"password": "hunter2", "text": "my own secret text", "url": "other"}
    said = " ".join(await errors_of(schema, value))

    for hidden in ("hunter2", "secret text", "pa55word"):
        assert hidden not in said
    assert "$.password" in said


async def test_long_names_and_long_lists_are_cut() -> None:
    """A value may make its error as long as it likes."""
    value: JsonValue = "x"
    for _ in range(50):
        value = {"n" * 500: value}
    recursive: JsonValue = {"additionalProperties": {"$ref": "#"}, "type": "object"}
    for said in (
        *await errors_of(recursive, value),
        *await errors_of({"enum": ["o" * 100] * 500}, 1),
        *await errors_of({"unevaluatedProperties": False}, {"k" * 1000: 1}),
    ):
        assert len(said) < 1000


async def test_older_dialects_are_honoured() -> None:
    """In draft-07 a list under `items` is what `prefixItems` became."""
    items: JsonValue = [{"type": "integer"}]
    assert not await is_accepted({"$schema": DRAFT_7, "items": items}, ["x"])
    assert not await is_accepted({"prefixItems": items}, ["x"])
    draft_4: JsonValue = {
        "$schema": "http://json-schema.org/draft-04/schema",
        "minimum": 1,
        "exclusiveMinimum": True,
    }
    assert not await is_accepted(draft_4, 1)
    for name in ("draft-06", "draft-07"):
        schema: JsonValue = {"$schema": f"http://json-schema.org/{name}/schema#"}
        assert await is_accepted(schema, 1)


async def test_an_unknown_dialect_is_refused() -> None:
    """Its keywords could mean anything."""
    assert "names no dialect" in await why_unusable({"$schema": "https://example.com/mine"})
    assert "names no dialect" in await why_unusable({"$schema": 7})


@pytest.mark.parametrize(
    "reference", ["https://example.com/schema", "file:///etc/passwd", "other.json#/a", "//host/a"]
)
@pytest.mark.parametrize("keyword", ["$ref", "$dynamicRef"])
async def test_nothing_outside_a_schema_is_fetched(keyword: str, reference: str) -> None:
    """A server could make the daemon read its files, or call its neighbours."""
    why = await why_unusable({"properties": {"a": {keyword: reference}}})
    assert reference in why
    assert "$defs" in why


async def test_references_within_a_schema_work() -> None:
    """Schema generators write `$defs`; recursive values need them."""
    tree: JsonValue = {
        "$id": "https://example.com/tree",
        "$defs": {
            "node": {
                "$anchor": "node",
                "type": "object",
                "properties": {"children": {"items": {"$ref": "#/$defs/node"}}},
            },
            "a/b~c": {"type": "integer"},
        },
        "properties": {
            "root": {"$ref": "#node"},
            "same": {"$ref": "https://example.com/tree#/$defs/node"},
            "odd": {"$ref": "#/$defs/a~1b~0c"},
        },
    }
    assert await is_accepted(tree, {"root": {"children": [{"children": []}]}, "odd": 1})
    assert not await is_accepted(tree, {"root": {"children": [{"children": [1]}]}})
    assert not await is_accepted(tree, {"same": 1})
    assert not await is_accepted(tree, {"odd": "x"})


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"type": "objekt"}, "it is no valid JSON Schema: $.type"),
        ({"$ref": "#/$defs/missing"}, "and there is no schema"),
        ({"$ref": "#"}, "refers to itself without end"),
        ({"$defs": {"a": {"$id": "x"}}}, "$id of its own"),
        ({"pattern": "("}, "no regular expression"),
        ("object", "has to be an object"),
        (None, "has to be an object"),
        ({"description": "x" * 300_000}, "is larger than 256 KiB"),
        ({"enum": [0] * 20_000}, "has more than 10000 parts"),
        ({"title": "\ud800"}, "cannot be read"),
    ],
)
async def test_a_broken_schema_is_a_fault_of_its_server(schema: JsonValue, said: str) -> None:
    """The tool is named and the reason too; nobody looks for the mistake in the arguments."""
    assert said in await why_unusable(schema)


async def test_a_broken_schema_is_refused_again_without_being_read_again() -> None:
    """It would else cost each call what it cost the first."""
    subject = checker()
    schema: JsonValue = {"pattern": "("}
    for _ in range(2):
        with pytest.raises(SchemaUnusableError):
            await subject.check_arguments("read", schema, {})
    assert len(subject._kept) == 1


async def test_a_new_listing_replaces_a_schema() -> None:
    """After `list_changed` the same tool may take other arguments."""
    subject = checker()
    assert await subject.check_arguments("read", {"type": "object"}, {}) is None
    with pytest.raises(ArgumentsInvalidError):
        await subject.check_arguments("read", {"type": "array"}, {})


async def test_as_many_schemas_are_kept_as_the_bound_allows() -> None:
    """A server with ten thousand tools shall not fill the memory."""
    subject = checker()
    schema: JsonValue = {"type": "object"}
    for number in range(MAX_KEPT + 10):
        await subject.check_arguments(f"tool{number}", schema, {})
    assert len(subject._kept) == MAX_KEPT
    subject.close()
    assert not subject._kept


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        (r"^(?!\.)(?!.*\.\.)[a-z.]+@[a-z]+$", "a.b@c", "a..b@c"),
        (r"^(?=.*\d)(?=.*[a-z]).{4,}$", "abc1", "abcd"),
        (r"^[a-z](?:(?!--)[a-z-])*$", "a-b", "a--b"),
        (r"^\p{L}+$", "é", "1"),
        (r"^[0-9a-f]{8}-[0-9a-f]{4}$", "0123abcd-0000", "x"),
    ],
)
async def test_patterns_of_schema_generators_are_understood(
    pattern: str, good: str, bad: str
) -> None:
    """Zod writes look-aheads into every e-mail address; refusing them would refuse many tools."""
    assert await is_accepted({"pattern": pattern}, good)
    assert not await is_accepted({"pattern": pattern}, bad)


async def test_format_is_an_annotation() -> None:
    """2020-12 says so, and servers mean different things by the same format."""
    assert await is_accepted({"format": "email"}, "nobody")


async def test_true_false_and_empty_schemas_are_schemas() -> None:
    """All three are valid, and `false` accepts nothing."""
    assert await is_accepted(True, 1)
    assert await is_accepted({}, 1)
    assert not await is_accepted(False, 1)


async def test_a_large_result_is_checked() -> None:
    """Five thousand rows are an ordinary answer of a database."""
    row: JsonValue = {
        "type": "object",
        "required": ["id", "name"],
        "properties": {"id": {"type": "integer"}, "name": {"type": "string", "minLength": 1}},
    }
    schema: JsonValue = {"properties": {"rows": {"type": "array", "items": row}}}
    rows: list[JsonValue] = [{"id": n, "name": f"n{n}"} for n in range(5000)]
    assert await is_accepted(schema, {"rows": rows})
    assert not await is_accepted(schema, {"rows": [*rows, {"id": 1}]})


async def test_what_cannot_be_checked_in_time_is_passed_on_and_said() -> None:
    """A large answer is no fault; refusing it would break a tool that works."""
    found = await checker().check_result("read", {"items": {}}, ["x"] * 60_000)
    assert found == Unchecked(
        "files", "read", "outputSchema", "the value is larger than 50000 parts or 4 MiB"
    )
