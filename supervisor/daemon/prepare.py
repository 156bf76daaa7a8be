"""The first steps of a start, in their order: namesake, places, configuration, limits, lock.

Nothing here starts a thread, a loop or a process, so that a detach may still follow.
"""

import os
from dataclasses import dataclass
from importlib import metadata
from typing import Final

from supervisor.config.load import load_configuration
from supervisor.config.models import Configuration
from supervisor.core.places import Places
from supervisor.daemon.exits import AlreadyRunningError, NamesakeError
from supervisor.daemon.options import Options, home, locate
from supervisor.linux.limits import raise_descriptors
from supervisor.linux.lock_file import Held, HeldByOther, acquire_lock
from supervisor.linux.unix_socket import ensure_private_dir, find_group

_UMASK: Final = 0o077
"""Whatever the daemon makes is its own; sockets get their mode without any umask's help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What the rest of a start needs.

    Attributes:
        configuration: as read from the file.
        places: absolute paths; state and runtime directory exist and are private.
        lock: ours until the process ends.
        group: the gid that may use the sockets, or None.
        original_nofile: soft and hard limit of descriptors before ours was raised, for children.
        original_umask: the umask that we were started with, for children.
    """

    configuration: Configuration
    places: Places
    lock: Held
    group: int | None
    original_nofile: tuple[int, int]
    original_umask: int


def prepare(options: Options) -> Prepared:
    """Do all that comes before a detach.

    Raises:
        ConfigError: the configuration cannot be used, or the namesake is installed.
        AlreadyRunningError: another daemon holds the lock; nothing of it was touched.
        KernelError: a directory or the lock cannot be had.
    """
    refuse_namesake()
    _open_standard_streams()
    places = locate(options)
    configuration = read_configuration(options, places)
    original_umask = os.umask(_UMASK)
    original_nofile = raise_descriptors()
    wanted = configuration.settings.socket_group
    group = None if wanted is None else find_group(wanted)
    ensure_private_dir(places.state_dir)  # first: the runtime directory may lie in it
    ensure_private_dir(places.runtime_dir, group=group)
    lock = acquire_lock(places.lock_file)
    if isinstance(lock, HeldByOther):
        raise AlreadyRunningError(places.runtime_dir, lock.pid_hint)
    return Prepared(
        configuration=configuration,
        places=places,
        lock=lock,
        group=group,
        original_nofile=original_nofile,
        original_umask=original_umask,
    )


def refuse_namesake(distribution: str = "supervisor") -> None:
    """Refuse to go on beside the PyPI project that shares our import name.

    Raises:
        NamesakeError: it is installed in this environment.
    """
    try:
        metadata.distribution(distribution)
    except metadata.PackageNotFoundError:
        return
    raise NamesakeError


def read_configuration(options: Options, places: Places) -> Configuration:
    """The configuration; its file may be missing unless somebody named it.

    Raises:
        ConfigError: it cannot be used.
    """
    named = options.config or os.environ.get("MCP_SUPERVISOR_CONFIG")
    return load_configuration(
        places.config_file, os.environ, home=home(), required=named is not None
    )


def _open_standard_streams() -> None:
    """Let descriptors 0 to 2 be something: a socket in their place would be printed to."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # the lowest free number is the one that is missing
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
