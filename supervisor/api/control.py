"""What the control API needs of the daemon; the manager has it without knowing this file."""

from typing import Protocol

from supervisor.core.ids import InstanceId, ServerName, SessionKey
from supervisor.core.report import CleanupReport, Outcome
from supervisor.core.views import (
    InstanceView,
    ReloadAnswer,
    RestartAnswer,
    ServerView,
    StartAnswer,
    StatusView,
    StopAnswer,
)


class Control(Protocol):
    """The servers of one daemon. All calls come from the event loop's thread.

    The coroutines that stop something finish what they began: cancelling the caller (a client
    that went away) does not cancel the stop.
    """

    def status(self) -> StatusView:
        """The daemon and all that it holds, as it is now."""

    def servers(self) -> tuple[ServerView, ...]:
        """All configured servers, sorted by name."""

    def server(self, name: ServerName) -> ServerView:
        """One of them.

        Raises:
            UnknownServerError: there is no such server.
        """

    def instances(self, *, quarantined: bool | None = None) -> tuple[InstanceView, ...]:
        """The families that are not confirmed gone, sorted by server and id.

        Args:
            quarantined: only those that are, or are not; None for all.
        """

    def instance(self, instance: InstanceId) -> InstanceView:
        """One of them.

        Raises:
            UnknownInstanceError: it is not listed (any more).
        """

    def reports(self, *, outcome: Outcome | None = None) -> tuple[CleanupReport, ...]:
        """The cleanup reports that are kept, oldest first."""

    def report(self, instance: InstanceId) -> CleanupReport:
        """The report of an instance whose stop was decided.

        Raises:
            UnknownInstanceError: it has none (yet), or none that was kept.
        """

    async def settled_report(self, instance: InstanceId) -> CleanupReport:
        """The same; while the instance is stopping, wait for the decision.

        Raises:
            UnknownInstanceError: it is not stopping and has no report.
        """

    async def start(self, name: ServerName, session: SessionKey) -> StartAnswer:
        """Ensure one instance.

        Raises:
            SupervisorError: it cannot be started; every subclass says why.
        """

    async def stop(
        self, name: ServerName, session: SessionKey | None, *, force: bool, verify: bool
    ) -> StopAnswer:
        """Stop all instances of a server, or those of one session; answers when decided.

        Raises:
            UnknownServerError: there is no such server.
        """

    async def stop_instance(self, instance: InstanceId, *, force: bool, verify: bool) -> StopAnswer:
        """Stop one instance; answers when decided.

        Raises:
            UnknownInstanceError: it is not listed.
        """

    async def restart(
        self, name: ServerName, session: SessionKey, *, force: bool, verify: bool
    ) -> RestartAnswer:
        """Stop, and once that is confirmed start again.

        Raises:
            SupervisorError: as `start`.
        """

    async def reload(self) -> ReloadAnswer:
        """Read the configuration again and move only what has changed.

        Raises:
            ConfigError: the files are wrong; the running configuration stays as it is.
        """

    async def release(self, instance: InstanceId) -> CleanupReport:
        """Give a quarantined instance up; answers the amended report.

        Raises:
            NotQuarantinedError: it is not quarantined.
            UnknownInstanceError: it is not listed.
        """


class RequestShutdown(Protocol):
    """Lets the daemon stop: not the manager's, since more than servers has to end."""

    def __call__(self, *, force: bool, caller: str) -> None:
        """Begin the stop, or hurry it; returns at once. `caller` is for the log."""
