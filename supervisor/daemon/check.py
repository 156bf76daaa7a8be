"""`mcp-supervisord check`: what the configuration is worth, without starting anything."""

import sys

from supervisor.config.models import Configuration
from supervisor.core.exits import CONFIGURATION, DONE
from supervisor.daemon.options import Options, locate
from supervisor.daemon.prepare import read_configuration

_NOW_SPOKEN = "stdio"


def check_configuration(options: Options) -> int:
    """Print every problem and warning, then a summary.

    Returns:
        0, or 100 when an enabled stdio server could not be started as its record stands.

    Raises:
        ConfigError: the file as a whole cannot be used.
    """
    configuration = read_configuration(options, locate(options))
    for warning in configuration.warnings:
        _say(f"warning: {warning}")
    for server in configuration.servers.values():
        for problem in server.problems:
            _say(f"{'' if server.enabled else 'disabled: '}{problem}")
    usable = [server for server in configuration.servers.values() if server.launch is not None]
    print(  # noqa: T201 - the answer
        f"{configuration.file or 'no configuration file'}: "
        f"{len(configuration.servers)} servers, {len(usable)} of them can be started"
    )
    return CONFIGURATION if _broken(configuration) else DONE


def _broken(configuration: Configuration) -> bool:
    # records of remote servers are right, only early: they do not make a file wrong
    return any(
        server.enabled and server.transport == _NOW_SPOKEN and server.problems
        for server in configuration.servers.values()
    )


def _say(line: str) -> None:
    print(line, file=sys.stderr)  # noqa: T201 - for the person who checks
