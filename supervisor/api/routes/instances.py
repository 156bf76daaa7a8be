"""`/v1/instances`: the families of processes that are not confirmed gone."""

from fastapi import APIRouter

from supervisor.api.bodies import ActionBody, InstanceList
from supervisor.api.control import Control
from supervisor.api.params import InstancePath
from supervisor.core.report import CleanupReport
from supervisor.core.views import InstanceView, StopAnswer


def instances_router(control: Control) -> APIRouter:
    """The routes of this noun, over `control`."""
    router = APIRouter(prefix="/v1/instances", tags=["instances"])

    @router.get("")
    async def list_instances(*, quarantined: bool | None = None) -> InstanceList:
        """All instances, or only those that are, or are not, quarantined."""
        return InstanceList(instances=control.instances(quarantined=quarantined))

    @router.get("/{instance_id}")
    async def show_instance(instance_id: InstancePath) -> InstanceView:
        """One instance that lives, stops or is quarantined."""
        return control.instance(instance_id)

    @router.post("/{instance_id}/stop")
    async def stop(instance_id: InstancePath, body: ActionBody | None = None) -> StopAnswer:
        """Stop this instance; answers when decided."""
        asked = body or ActionBody()
        return await control.stop_instance(instance_id, force=asked.force, verify=asked.verify)

    @router.get("/{instance_id}/report")
    async def report(instance_id: InstancePath) -> CleanupReport:
        """Its cleanup report; while it is stopping, waits for the decision."""
        return await control.settled_report(instance_id)

    @router.post("/{instance_id}/release")
    async def release(instance_id: InstancePath) -> CleanupReport:
        """Give a quarantined instance up; answers the amended report."""
        return await control.release(instance_id)

    return router
