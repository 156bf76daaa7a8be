"""The cleanup reports of this run, the last thousand."""

from collections import OrderedDict
from typing import Final

from supervisor.core.errors import UnknownInstanceError
from supervisor.core.ids import InstanceId
from supervisor.core.report import CleanupReport, Outcome

KEPT_REPORTS: Final = 1000
"""About 5 KB each; enough for a day of somebody who asks late."""


class Archive:
    """Keeps one report an instance, the newest amendment of each."""

    def __init__(self) -> None:
        self._reports: OrderedDict[str, CleanupReport] = OrderedDict()

    def keep(self, report: CleanupReport) -> None:
        """Add a report, or replace an earlier one of the same instance in its place."""
        self._reports[report.instance] = report
        while len(self._reports) > KEPT_REPORTS:
            self._reports.popitem(last=False)

    def reports(self, outcome: Outcome | None) -> tuple[CleanupReport, ...]:
        """What is kept, oldest first; released ones count as what they were."""
        found = self._reports.values()
        return tuple(r for r in found if outcome in {None, r.outcome})

    def report(self, instance: InstanceId) -> CleanupReport:
        """The report of one instance.

        Raises:
            UnknownInstanceError: it has none (yet), or none that was kept.
        """
        found = self._reports.get(instance)
        if found is None:
            raise UnknownInstanceError(instance)
        return found
