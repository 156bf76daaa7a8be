"""Whether the service manager waits as long as the stops that are configured may take.

Source: systemd.service(5), TimeoutStopSec: what has not ended by then gets SIGKILL;
systemd.exec(5), SYSTEMD_EXEC_PID and INVOCATION_ID; cgroups(7), /proc/PID/cgroup.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from supervisor.cli.doctor.finding import Finding
from supervisor.config.models import Configuration
from supervisor.core.launch import DEFAULT_DEADLINE_S

UNIT_TIMEOUT_S: Final = 30.0
"""TimeoutStopSec in the units that come with this."""

MARGIN_S: Final = 5.0
"""What the daemon may need of it beside its servers: the last verdicts, and its own end."""


def check_deadline(
    configuration: Configuration, pid: int, environ: Mapping[str, str]
) -> Iterator[Finding]:
    """Warn of a daemon under systemd that may take longer to stop than its unit allows.

    Args:
        configuration: as it is read now.
        pid: the daemon's.
        environ: the daemon's environment.
    """
    budget_s = _budget_s(configuration)
    if budget_s <= UNIT_TIMEOUT_S - MARGIN_S:
        return
    try:
        cgroups = Path(f"/proc/{pid}/cgroup").read_text()
    except OSError:
        cgroups = ""
    unit = service_of(pid, cgroups, environ)
    if unit is None:
        return
    message = (
        f"the daemon's stop may take {budget_s:g} s, and the unit that comes with it ends what is "
        f"left after {UNIT_TIMEOUT_S:g} s"
    )
    manager = "systemctl --user" if "/user@" in cgroups else "systemctl"
    hint = (
        f"Write TimeoutStopSec={budget_s + MARGIN_S:g} below [Service] in a drop-in "
        f"(`{manager} edit {unit}`), or lower supervisor.shutdownTimeoutMs."
    )
    yield Finding(level="warning", check="deadline", server=None, message=message, hint=hint)


def service_of(pid: int, cgroups: str, environ: Mapping[str, str]) -> str | None:
    """The systemd service that a process belongs to; None for one that a person has started.

    Args:
        pid: of the process.
        cgroups: text of its /proc/PID/cgroup.
        environ: its environment. What a service starts inherits INVOCATION_ID, terminals of a
            desktop among it, so that alone only counts where no cgroup says more.
    """
    units = [
        part
        for line in cgroups.splitlines()
        for part in line.split(":", 2)[-1].split("/")
        if part.endswith((".service", ".scope"))
    ]
    if units and units[-1].endswith(".service"):
        return units[-1]
    if environ.get("SYSTEMD_EXEC_PID") == str(pid) or (not units and "INVOCATION_ID" in environ):
        return "mcp-supervisord.service"
    return None


def _budget_s(configuration: Configuration) -> float:
    """Seconds for the daemon's own stop, as the daemon reckons it."""
    configured = configuration.settings.shutdown_timeout_s
    if configured is not None:
        return configured
    launches = [server.launch for server in configuration.servers.values()]
    deadlines = [launch.stop.deadline_s for launch in launches if launch is not None]
    return max(deadlines, default=DEFAULT_DEADLINE_S)
