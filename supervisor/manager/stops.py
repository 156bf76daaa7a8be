"""Stops instances, side by side, and waits for what is decided about each."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import anyio

from supervisor.core.report import Reason
from supervisor.core.views import StopAnswer, StopSummary
from supervisor.process.custody import Held

if TYPE_CHECKING:
    from supervisor.manager.manager import Manager

LAST_WORD_PATIENCE_S: Final = 0.1
"""How much longer than the budget the daemon waits for verdicts that are due at its end."""


class Stops:
    """The stops of one manager."""

    def __init__(self, manager: "Manager") -> None:
        self._manager = manager

    async def stop(
        self, held: Iterable[Held], reason: Reason, *, force: bool, verify: bool
    ) -> StopAnswer:
        """Stop these instances in parallel; answers when all are decided."""
        asked = [h.instance for h in held]
        for instance in asked:
            if not instance.stopping:
                self._manager.events.record(
                    "stop_requested",
                    server=instance.server,
                    instance=instance.id,
                    session=instance.session,
                    reason=reason,
                )
            instance.request_stop(reason, force=force, verify=verify)
        reports = tuple([await instance.wait_settled() for instance in asked])
        if not reports:
            return StopAnswer(outcome="nothing_running", reports=())
        confirmed = all(report.outcome == "confirmed" for report in reports)
        return StopAnswer(outcome="confirmed" if confirmed else "unconfirmed", reports=reports)

    async def stop_all(self, reason: Reason, *, budget_s: float) -> StopSummary:
        """Stop every instance in parallel; answers within `budget_s` seconds."""
        budget_at = anyio.current_time() + budget_s
        asked = self._manager.held()
        for held in asked:
            held.instance.request_stop(reason, budget_at=budget_at)
        with anyio.move_on_after(budget_s + LAST_WORD_PATIENCE_S):
            for held in asked:
                await held.instance.wait_settled()
        unconfirmed = len(self._manager.held())
        return StopSummary(confirmed=len(asked) - unconfirmed, unconfirmed=unconfirmed)

    def force(self) -> None:
        """Hurry every stop that is under way: SIGKILL is due now."""
        for held in self._manager.held():
            if held.instance.stopping:
                held.instance.request_stop(held.instance.state.reason, force=True)
