"""`/v1/reports`: how stops ended."""

from fastapi import APIRouter

from supervisor.api.bodies import ReportList
from supervisor.api.control import Control
from supervisor.core.report import Outcome


def reports_router(control: Control) -> APIRouter:
    """The routes of this noun, over `control`."""
    router = APIRouter(prefix="/v1/reports", tags=["reports"])

    @router.get("")
    async def list_reports(outcome: Outcome | None = None) -> ReportList:
        """The cleanup reports that are kept, oldest first."""
        return ReportList(reports=control.reports(outcome=outcome))

    return router
