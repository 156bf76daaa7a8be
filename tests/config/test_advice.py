"""Advice: literal secrets that should be references, and containers that outlive their client."""

import json

import pytest
from pydantic import JsonValue

from supervisor.config.advice import docker_like, literal_secrets, missing_run_options
from supervisor.config.document import parse
from supervisor.core.launch import LaunchSpec


def found_in(servers: dict[str, JsonValue]) -> list[tuple[str, str]]:
    """The places of literal secrets in a file with these servers."""
    found = literal_secrets(parse(json.dumps({"mcpServers": servers}), "f.json"))
    assert "CANARY" not in repr(found)
    return [(server, field) for server, field in found]


def test_literal_secrets_are_found_where_files_hold_them() -> None:
    """By name, by flag, in addresses; what only resembles them is left alone."""
    servers: dict[str, JsonValue] = {
        "remote": {
            "url": "http://user:CANARY-1@127.0.0.1:9/mcp?page=1",
            "headers": {
                "Authorization": "Bearer CANARY-2",
                "X-Api-Key": "CANARY-3",
                "Accept-Language": "en",
            },
        },
        "local": {
            "command": "python3",
            "args": ["s.py", "--api-key=CANARY-4", "--token", "CANARY-5", "--region", "eu"],
            "env": {
                "DIFY_KEY": "CANARY-6",
                "DATABASE_URL": "postgres://app:CANARY-7@db/app",
                "PIN_PASSWORD": 123456,
                "REGION": "eu-north",
            },
        },
    }

    assert found_in(servers) == [
        ("local", "args[1]"),
        ("local", "args[3]"),
        ("local", "env.DATABASE_URL"),
        ("local", "env.DIFY_KEY"),
        ("local", "env.PIN_PASSWORD"),
        ("remote", "headers.Authorization"),
        ("remote", "headers.X-Api-Key"),
        ("remote", "url"),
    ]


@pytest.mark.parametrize(
    "value",
    [
        "${TOKEN}",
        "Bearer ${TOKEN}",
        "token ${TOKEN}",
        "${TOKEN:-}",
        "${TOKEN:-none}",
        "$TOKEN",
        "$${TOKEN}",
        "",
        "none",
        "true",
    ],
)
def test_a_reference_is_no_literal_secret(value: str) -> None:
    """It is what the advice asks for; a placeholder gives nothing away."""
    assert found_in({"a": {"env": {"API_TOKEN": value}, "args": ["--token", value]}}) == []


def test_a_scheme_is_one_at_the_beginning_only() -> None:
    """A password may end like one."""
    assert found_in({"a": {"env": {"DB_PASSWORD": "xy token"}}}) == [("a", "env.DB_PASSWORD")]


def test_an_address_of_references_is_no_literal_secret() -> None:
    """Nor is one without any."""
    for url in ("http://${USER}:${PASS}@h/?key=${KEY}", "http://h/?page=1"):
        assert found_in({"a": {"env": {"DATABASE_URL": url}, "args": [url], "url": url}}) == []


@pytest.mark.parametrize(
    "value",
    [
        "${GIT:-CANARY}",
        "${TOKEN:-CANARY}",
        "Bearer CANARY",
        "http://app:CANARY@${HOST}/",
        "${A}CANARY",
    ],
)
def test_a_reference_beside_a_literal_secret_does_not_cover_it(value: str) -> None:
    """A default is written down as well."""
    assert found_in({"a": {"env": {"API_TOKEN": value}}}) == [("a", "env.API_TOKEN")]


def test_a_word_is_not_blamed_for_the_flag_before_it() -> None:
    """The place that is named is the one to mend."""
    assert found_in({"a": {"args": ["-xhttp://u:CANARY@h", "plain"]}}) == [("a", "args[0]")]


@pytest.mark.parametrize(
    "record",
    [None, [], "x", {"args": 5, "env": [], "headers": "x", "url": 1}, {"args": [None, "--token"]}],
)
def test_a_record_that_is_wrong_gets_no_advice(record: JsonValue) -> None:
    """What is wrong with it is told elsewhere."""
    assert found_in({"a": record}) == []


def launch(words: str) -> LaunchSpec:
    """A launch of these words."""
    return LaunchSpec(argv=tuple(words.split()), env={})


@pytest.mark.parametrize(
    "words",
    ["docker run x", "/usr/bin/podman run x", "sudo -n docker run x", "env A=1 nerdctl run x",
     "docker mcp gateway run", "docker exec -i c x"],
)  # fmt: skip
def test_a_container_s_client_is_known(words: str) -> None:
    """The container is no member of the family, and the operator should know."""
    assert docker_like(launch(words))


@pytest.mark.parametrize("words", ["uvx docker", "python3 docker", "/opt/docker/server", "env"])
def test_what_only_speaks_of_docker_is_no_client(words: str) -> None:
    """A server that manages containers is an ordinary one."""
    assert not docker_like(launch(words))
    assert missing_run_options(launch(words)) == ()


@pytest.mark.parametrize(
    ("words", "missing"),
    [
        ("docker run x", ("-i", "--rm")),
        ("docker run --rm x -i", ("-i",)),
        ("docker run -i x --rm", ("--rm",)),
        ("docker run -i --rm x", ()),
        ("docker run --rm -it x", ()),
        ("docker run --interactive --rm=true x", ()),
        ("docker run --rm=false -i x", ("--rm",)),
        ("docker run -e TOKEN --name n -v /a:/b -i --rm x", ()),
        ("docker run -e --rm -i x", ("--rm",)),
        ("docker run -eTOKEN=1 --env=B=2 --init -i --rm x", ()),
        ("docker run -ie TOKEN --rm x", ()),
        ("docker --context far container run -i --rm x", ()),
        ("docker container run x", ("-i", "--rm")),
        ("docker run", ("-i", "--rm")),
        ("docker compose run x", ()),
        ("docker mcp gateway run", ()),
        ("docker exec c x", ()),
    ],
)
def test_options_of_a_run_are_looked_for_before_its_image(
    words: str, missing: tuple[str, ...]
) -> None:
    """What follows the image belongs to the program in the container."""
    assert missing_run_options(launch(words)) == missing
