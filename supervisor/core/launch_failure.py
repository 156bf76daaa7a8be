"""Says in one sentence why a server could not be started, and what to do about it.

execve(2) uses one errno for several mistakes; the helper that tried has told them apart by the
step and the errno, and this table gives each its own sentence.
"""

from collections.abc import Mapping
from errno import EACCES, EAGAIN, EISDIR, EMFILE, ENOENT, ENOEXEC, ENOMEM, ENOTDIR, EPERM, errorcode
from typing import Final, assert_never

from supervisor.core.errors import LaunchFailedError, LaunchStep

WILL_NOT_MEND: Final[frozenset[LaunchStep]] = frozenset({"lookup", "chdir", "user"})
"""Steps whose failures stay until somebody changes something: no use in trying again."""


def launch_failure(
    server: str, step: LaunchStep, errno: int, path: str, env: Mapping[str, str]
) -> LaunchFailedError:
    """The error of one failed launch.

    Args:
        server: its name in the configuration.
        step: where the launch stopped.
        errno: the kernel's reason, 0 where there is none.
        path: the path concerned.
        env: the server's environment, for the PATH that was searched.
    """
    return LaunchFailedError(server, step, errno, path, sentence=_sentence(step, errno, path, env))


def _sentence(step: LaunchStep, errno: int, path: str, env: Mapping[str, str]) -> str:
    kernel = errorcode.get(errno, f"errno {errno}")
    match step:
        case "lookup":
            return _lookup(path, env)
        case "exec":
            return _exec(errno, path, kernel)
        case "chdir":
            return _chdir(errno, path, kernel)
        case "user":
            allowed = "only root can start other users' servers" if errno == EPERM else kernel
            return f"switching to uid:gid {path} failed; {allowed}."
        case "limits":
            return f"its resource limits cannot be set ({kernel})."
        case "relay":
            busy = errno in {EAGAIN, EMFILE, ENOMEM}
            hint = " The machine is out of processes, descriptors or memory." if busy else ""
            return f"its relay could not be started ({path or kernel}).{hint}"
        case _:
            assert_never(step)


def _chdir(errno: int, path: str, kernel: str) -> str:
    why = {
        ENOENT: "does not exist",
        ENOTDIR: "is not a directory",
        EACCES: "may not be entered by the server's user",
    }.get(errno, f"cannot be entered ({kernel})")
    return f"its working directory {path!r} {why}; set `cwd` to one that can be used."


def _lookup(path: str, env: Mapping[str, str]) -> str:
    if "/" in path:
        return f"command {path!r} not found; there is no such file."
    searched = env.get("PATH", "")
    where = f"the PATH that was searched is {searched!r}" if searched else "it has no PATH"
    return (
        f"command {path!r} not found; {where}. Give `command` as a full path, or add its "
        "directory to PATH in the server's `env` or in `supervisor.path`."
    )


def _exec(errno: int, path: str, kernel: str) -> str:
    if errno == ENOENT:
        return (
            f"{path!r} exists, but the interpreter in its first line (or its loader) does not; "
            "install it or correct the #! line."
        )
    if errno == EISDIR:
        return f"{path!r} is a directory, not a program; `command` must name a file."
    if errno == EACCES:
        return f"{path!r} is not executable for the server's user; `chmod +x` it or name another."
    if errno == ENOEXEC:
        return f"{path!r} is not a program that this machine can run (a script needs a #! line)."
    return f"running {path!r} failed ({kernel})."
