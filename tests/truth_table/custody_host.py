"""A process that owns families with the real custody, commanded by lines of JSON on stdin.

A process of its own, since an owner is a subreaper and may be killed by a test. Commands:
`{"spawn": {"argv", "env", "deadline_s", "term_after_s", "kill_after_s"}}`, `{"stop": id,
"force"?, "verify"?}`, `{"view": id}`; each gets one line of JSON in answer, with its `tag`.
Verdicts that nobody asked for come as `{"verdict": report}`.

Arguments: directory of the records, and `forked` or `executed` for how relays are started.
"""

import json
import os
import signal
import sys
from typing import Any

import anyio
import anyio.to_thread

from supervisor.core.errors import SupervisorError
from supervisor.core.ids import InstanceId, ServerName
from supervisor.core.launch import LaunchSpec, StopPolicy
from supervisor.linux.limits import raise_descriptors
from supervisor.process.custody import Custody, Held
from supervisor.process.instance import Instance
from supervisor.process.plumbing import Inheritance
from supervisor.process.records import Records


def say(body: dict[str, Any]) -> None:
    """Write one line; the test reads them in order."""
    os.write(1, json.dumps(body).encode() + b"\n")


class Host:
    """Carries out commands, each in its own task."""

    def __init__(self, custody: Custody) -> None:
        self.custody = custody
        self.reports: dict[str, dict[str, Any]] = {}
        custody.on_verdict = self.judged

    def judged(self, instance: Instance) -> None:
        """Keep and announce a verdict."""
        if instance.report is not None:
            self.reports[instance.id] = instance.report.as_json()
            say({"verdict": self.reports[instance.id]})

    async def obey(self, command: dict[str, Any]) -> None:
        """Carry out one command and answer it."""
        tag = command["tag"]
        try:
            if "spawn" in command:
                answer = await self.spawn(command["spawn"])
            elif "stop" in command:
                answer = await self.stop(command)
            else:
                answer = view(self.custody.held[InstanceId(command["view"])])
        except SupervisorError as error:
            answer = {"error": error.code, "message": str(error)}
        say({"tag": tag, **answer})

    async def spawn(self, wanted: dict[str, Any]) -> dict[str, Any]:
        """Start one server."""
        policy = StopPolicy(
            deadline_s=wanted["deadline_s"],
            term_after_s=wanted["term_after_s"],
            kill_after_s=wanted["kill_after_s"],
        )
        spec = LaunchSpec(
            argv=tuple(wanted["argv"]),
            env=wanted["env"],
            uid=wanted.get("uid"),
            gid=wanted.get("gid"),
            stop=policy,
        )
        held = await self.custody.spawn(spec, ServerName("truth"), None)
        held.family.discard_output()
        return view(held)

    async def stop(self, command: dict[str, Any]) -> dict[str, Any]:
        """Stop one instance, or join its stop."""
        instance = command["stop"]
        held = self.custody.held.get(InstanceId(instance))
        if held is None:
            return {"report": self.reports[instance]}
        held.instance.request_stop(
            "stop", force=command.get("force", False), verify=command.get("verify", False)
        )
        report = await held.instance.wait_settled()
        return {"report": report.as_json()}


def view(held: Held) -> dict[str, Any]:
    """The pids of one family."""
    family = held.family
    pids = {
        role: None if identity is None else identity.pid
        for role, identity in (
            ("relay", family.relay),
            ("anchor", family.anchor),
            ("server", family.server),
        )
    }
    return {"instance": held.instance.id, **pids, "known": sorted(i.pid for i in family.known)}


async def main() -> None:
    """Obey until stdin ends; then leave without stopping anything, as a daemon that is killed."""
    raise_descriptors()
    custody = Custody(
        Records(sys.argv[1]),
        Inheritance((1024, 4096), 0o022),
        use_fork_server=sys.argv[2] == "forked",
    )
    async with custody.open(), anyio.create_task_group() as tasks:
        host = Host(custody)
        with anyio.open_signal_receiver(signal.SIGCHLD) as signals:

            async def heed() -> None:
                async for _ in signals:
                    custody.children_changed()

            tasks.start_soon(heed)
            say({"ready": os.getpid(), "fork_server": custody.fork_server_pid})
            rest = b""
            while True:
                await anyio.wait_readable(0)
                data = os.read(0, 65536)
                if not data:
                    break
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    tasks.start_soon(host.obey, json.loads(line))
        tasks.cancel_scope.cancel()


anyio.run(main)
