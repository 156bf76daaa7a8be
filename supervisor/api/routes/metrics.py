"""`/metrics`: everything that is counted, in the text format that Prometheus reads."""

from collections.abc import Awaitable, Callable

from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse

from supervisor.telemetry.metrics import CONTENT_TYPE

CollectMetrics = Callable[[], Awaitable[bytes]]


def metrics_router(metrics: CollectMetrics) -> APIRouter:
    """The one route of this noun, over `metrics`."""
    router = APIRouter(tags=["daemon"])

    @router.get("/metrics", response_class=PlainTextResponse)
    async def show_metrics() -> Response:
        """Counters and gauges of the daemon and its servers, as they are now."""
        return Response(await metrics(), media_type=CONTENT_TYPE)

    return router
