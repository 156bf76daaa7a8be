"""Whether a server's command can be started: looked up as the kernel and the launch will.

Nothing is started. Looked up in the server's own PATH, since that is what a launch does; the PATH
of the shell that doctor runs in is only asked for a hint.

Source: execve(2), `#!` scripts: the interpreter is a path, at most 255 bytes of line; exec(3) for
the search; env(1) for `#!/usr/bin/env NAME`.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from supervisor.cli.doctor.finding import Finding
from supervisor.core.launch import LaunchSpec

_LINE_BYTES: Final = 256
"""What the kernel reads of a script's first line (BINPRM_BUF_SIZE)."""


def check_launch(server: str, launch: LaunchSpec, shell_path: str) -> list[Finding]:
    """What keeps `server` from starting, or one finding that says what would be started.

    Args:
        server: its name.
        launch: its record, ready to be started.
        shell_path: the PATH that doctor itself was given.
    """
    found = [*_check_folder(server, launch), *_check_command(server, launch, shell_path)]
    if found:
        return found
    message = f"starts {_find(launch)}"
    return [Finding(level="ok", check="launch", server=server, message=message)]


def look_up(command: str, path: str) -> tuple[str | None, str | None]:
    """Search `command` in `path`: the first executable file, and the first that is not one."""
    refused: str | None = None
    for folder in path.split(":"):
        candidate = os.path.join(folder or ".", command)  # noqa: PTH118 - keeps ./ and the PATH's spelling
        if not os.path.isfile(candidate):  # noqa: PTH113 - never raises, as for a broken entry
            continue
        if os.access(candidate, os.X_OK):
            return candidate, refused
        refused = refused or candidate
    return None, refused


def _find(launch: LaunchSpec) -> str:
    command = launch.argv[0]
    if "/" in command:
        return str(Path(launch.cwd) / command)
    return look_up(command, launch.env.get("PATH", ""))[0] or command


def _error(server: str, message: str, hint: str) -> Finding:
    return Finding(level="error", check="launch", server=server, message=message, hint=hint)


def _check_folder(server: str, launch: LaunchSpec) -> Iterator[Finding]:
    folder = Path(launch.cwd)
    hint = "Create it, or name another one as cwd."
    if not folder.exists():
        yield _error(server, f"the working directory {folder} does not exist", hint)
    elif not folder.is_dir():
        yield _error(server, f"the working directory {folder} is no directory", hint)
    elif not os.access(folder, os.X_OK):
        message = f"the working directory {folder} may not be entered"
        yield _error(server, message, "Give the daemon's user the x permission on it.")


def _check_command(server: str, launch: LaunchSpec, shell_path: str) -> Iterator[Finding]:
    command, path = launch.argv[0], launch.env.get("PATH", "")
    if "/" in command:
        file = Path(launch.cwd) / command
    else:
        found, refused = look_up(command, path)
        if found is None and refused is None:
            yield _not_found(server, command, path, shell_path)
            return
        file = Path(found or refused or command)
    yield from _check_file(server, file, launch.env)


def _not_found(server: str, command: str, path: str, shell_path: str) -> Finding:
    elsewhere = look_up(command, shell_path)[0]
    if elsewhere is not None:
        hint = (
            f"Your shell finds it as {elsewhere}: give that full path as command, or an env entry "
            f'"PATH" that holds {os.path.dirname(elsewhere)}.'  # noqa: PTH120 - text of the PATH
        )
    else:
        hint = 'Install it, or give a full path as command or an env entry "PATH" that holds it.'
    return _error(server, f"command {command!r} not found in PATH {path}", hint)


def _check_file(server: str, file: Path, env: Mapping[str, str]) -> Iterator[Finding]:
    if not file.exists():
        yield _error(server, f"command {file} does not exist", "Install it, or mend the path.")
    elif file.is_dir():
        yield _error(server, f"command {file} is a directory", "Name the program in it.")
    elif not os.access(file, os.X_OK):
        hint = f"`chmod +x {file}`, or make its interpreter the command and it an argument."
        yield _error(server, f"command {file} is not executable", hint)
    else:
        yield from _check_interpreter(server, file, env)


def _check_interpreter(server: str, file: Path, env: Mapping[str, str]) -> Iterator[Finding]:
    try:
        with file.open("rb") as stream:
            line = stream.read(_LINE_BYTES).partition(b"\n")[0]
    except OSError:
        return  # executable and not readable is allowed; the kernel sees the line, we do not
    if not line.startswith(b"#!"):
        return
    words = os.fsdecode(line[2:].strip(b" \t")).split(None, 1)
    if line.endswith(b"\r"):
        message = (
            f"the first line of {file} ends with a carriage return, so no interpreter is found"
        )
        yield _error(server, message, f"Save {file} with Unix line ends.")
    elif not words or not os.path.isfile(words[0]):  # noqa: PTH113 - never raises
        named = words[0] if words else "which is not named"
        message = f"the interpreter of {file}, {named}, does not exist"
        yield _error(server, message, "Install it, or mend the script's first line.")
    elif not os.access(words[0], os.X_OK):
        message = f"the interpreter of {file}, {words[0]}, is not executable"
        yield _error(server, message, "Mend its mode, or the script's first line.")
    elif Path(words[0]).name == "env" and len(words) > 1:
        yield from _check_env(server, file, words[1], env)


def _check_env(server: str, file: Path, rest: str, env: Mapping[str, str]) -> Iterator[Finding]:
    words = [word for word in rest.split() if "=" not in word and not word.startswith("-")]
    path = env.get("PATH", "")
    if words and "/" not in words[0] and look_up(words[0], path)[0] is None:
        message = f"the interpreter of {file}, {words[0]}, is not found in PATH {path}"
        yield _error(server, message, 'Install it, or give the server an env entry "PATH".')
