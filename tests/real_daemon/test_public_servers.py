"""Servers that people really use, from the public registries, under the SDK's own client.

Installed by the tests into throw-away folders; where a registry cannot be reached they are skipped.
"""

import os
import shutil
import subprocess  # noqa: TID251 - package managers are run as a user runs them
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from real_daemon.clients import MODES, Mode, sdk_client, sdk_client_of_session
from real_daemon.daemon_fixture import Daemon, record, running_daemon

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

INSTALL_WITHIN_S: Final = 240
EVERYTHING: Final = "@modelcontextprotocol/server-everything"
PATIENT: Final = {"deadlineMs": 8000, "termAfterMs": 4000, "killAfterMs": 6000}
"""npx has two processes before the server's, and Node takes its time to leave."""

_INDEX_SETTINGS: Final = ("PIP_", "npm_config_", "NPM_CONFIG_")


def install(argv: list[str], environ: dict[str, str]) -> None:
    """Run a package manager; skip the tests where it has no registry."""
    try:
        done = subprocess.run(  # noqa: S603 - a fixed command
            argv,
            env={**os.environ, **environ},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=INSTALL_WITHIN_S,
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"{argv[0]} did not install anything within {INSTALL_WITHIN_S} s")
    if done.returncode != 0:
        reason = (done.stderr or done.stdout).strip().splitlines()[-1:]
        pytest.skip(f"the registry is out of reach: {' '.join(reason)[:200]}")


def index_settings() -> dict[str, str]:
    """Where this machine's package managers look, since servers do not get our environment."""
    return {key: value for key, value in os.environ.items() if key.startswith(_INDEX_SETTINGS)}


@pytest.fixture(scope="module")
def npm_cache(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of an npx that has the package in a cache of its own."""
    npx = shutil.which("npx")
    if npx is None:
        pytest.skip("npx is not installed")
    cache = tmp_path_factory.mktemp("npm")
    environ = {
        **index_settings(),
        "npm_config_cache": str(cache),
        "npm_config_update_notifier": "false",
        "npm_config_prefer_offline": "true",
    }
    install([npx, "-y", "--package", EVERYTHING, "--", "node", "--version"], environ)
    return environ


@pytest.fixture(scope="module")
def python_servers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of a fresh environment with two servers."""
    venv = tmp_path_factory.mktemp("python") / "venv"
    # without a pip of its own, which would take longer than the servers
    install([sys.executable, "-m", "venv", "--without-pip", str(venv)], {})
    pip = [sys.executable, "-m", "pip", "--python", str(venv / "bin" / "python"), "install"]
    quiet = ["--quiet", "--disable-pip-version-check", "--no-warn-script-location"]
    install([*pip, *quiet, "mcp-server-time", "mcp-server-git"], {})
    return venv / "bin"


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository to look at."""
    git = shutil.which("git")
    if git is None:
        pytest.skip("git is not installed")
    folder = tmp_path_factory.mktemp("repository")
    install([git, "init", "--quiet", str(folder)], {})
    (folder / "new-file").write_text("new", "ascii")
    return folder


@contextmanager
def daemon_of(given: dict[str, Any]) -> Iterator[Daemon]:
    """A daemon with one public server."""
    with running_daemon({"public": {**given, "stop": PATIENT}}) as daemon:
        yield daemon


async def use(daemon: Daemon, mode: Mode, tool: str, arguments: dict[str, Any]) -> str:
    """Initialize, list the tools, call one, close; the text of the answer.

    At the end nothing but the daemon and its fork server is alive.
    """
    async with sdk_client(daemon, "public", mode) as client:
        tools = await client.list_tools()
        assert tool in {found.name for found in tools.tools}
        result = await client.call_tool(tool, arguments)
        assert not result.is_error
        (instance,) = daemon.instances()
        text = " ".join(str(content.model_dump().get("text")) for content in result.content)
    report = daemon.wait_judged(instance["id"])
    assert (report["reason"], report["outcome"]) == ("disconnect", "confirmed"), report
    assert len(daemon.alive()) == 2, daemon.alive()
    return text


@pytest.mark.parametrize("mode", MODES)
async def test_a_server_from_npm_runs_behind_npx(npm_cache: dict[str, str], mode: Mode) -> None:
    """What npx starts is a shell, and that starts Node: all three have to end."""
    with daemon_of(record("npx", "-y", EVERYTHING, env=npm_cache)) as daemon:
        assert "through npx" in await use(daemon, mode, "echo", {"message": "through npx"})


@pytest.mark.parametrize("mode", MODES)
async def test_the_time_server_runs(python_servers: Path, mode: Mode) -> None:
    """A server on the SDK's own server side, in Python."""
    with daemon_of(record(str(python_servers / "mcp-server-time"))) as daemon:
        text = await use(daemon, mode, "get_current_time", {"timezone": "Europe/Berlin"})
        assert "Europe/Berlin" in text


@pytest.mark.parametrize("mode", MODES)
async def test_the_git_server_runs(python_servers: Path, repository: Path, mode: Mode) -> None:
    """One that starts processes of its own for each call."""
    given = record(str(python_servers / "mcp-server-git"), "--repository", str(repository))
    with daemon_of(given) as daemon:
        text = await use(daemon, mode, "git_status", {"repo_path": str(repository)})
        assert "new-file" in text


async def test_public_servers_are_stopped_by_command_too(
    python_servers: Path, npm_cache: dict[str, str]
) -> None:
    """Without a client they wait for a first message; the stop does not wait with them."""
    records: dict[str, Callable[[], dict[str, Any]]] = {
        "time": lambda: record(str(python_servers / "mcp-server-time"), stop=PATIENT),
        "everything": lambda: record("npx", "-y", EVERYTHING, env=npm_cache, stop=PATIENT),
    }
    with running_daemon({name: make() for name, make in records.items()}) as daemon:
        for name in records:
            daemon.start_server(name)
        for name in records:
            (report,) = daemon.mcpctl_json("stop", name)["reports"]
            assert report["outcome"] == "confirmed", report
        assert len(daemon.alive()) == 2


@pytest.mark.parametrize("mode", MODES)
async def test_public_servers_are_one_server_behind_serve(
    python_servers: Path, npm_cache: dict[str, str], repository: Path, mode: Mode
) -> None:
    """One in Python, one in Node behind npx: their tools by one name each, progress, resources."""
    given = record(str(python_servers / "mcp-server-git"), "--repository", str(repository))
    records = {
        "git": {**given, "stop": PATIENT},
        "everything": record("npx", "-y", EVERYTHING, env=npm_cache, stop=PATIENT),
        "missing": record("mcp-no-such-command"),
    }
    heard: list[float] = []

    async def progressed(progress: float, total: float | None, message: str | None) -> None:
        del total, message
        heard.append(progress)

    with running_daemon(records) as daemon:
        async with sdk_client_of_session(daemon, "all", mode) as client:
            names = {tool.name for tool in (await client.list_tools()).tools}
            assert {name.partition("__")[0] for name in names} == {"git", "everything"}
            status = await client.call_tool("git__git_status", {"repo_path": str(repository)})
            assert "new-file" in str(status.content)
            echo = await client.call_tool("everything__echo", {"message": "through serve"})
            assert "through serve" in str(echo.content)
            await client.call_tool(
                "everything__trigger-long-running-operation",
                {"duration": 1, "steps": 4},
                progress_callback=progressed,
            )
            assert heard == [1, 2, 3, 4]
            resource = (await client.list_resources()).resources[0]
            assert (await client.read_resource(str(resource.uri))).contents
            prompts = {prompt.name for prompt in (await client.list_prompts()).prompts}
            assert "everything__simple-prompt" in prompts
            assert (await client.get_prompt("everything__simple-prompt")).messages
        answer = daemon.api("DELETE", "/v1/sessions/all")
        outcomes = {report["server"]: report["outcome"] for report in answer["reports"]}
        assert outcomes == {"git": "confirmed", "everything": "confirmed"}
        assert len(daemon.alive()) == 2
