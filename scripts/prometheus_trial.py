"""Serves some metrics on loopback, lets a Prometheus scrape them, prints what it then knows.

Usage: scripts/prometheus_trial.py PROMETHEUS FOLDER; `scripts/prometheus-trial` calls it.
"""

import json
import socket
import sys
from contextlib import closing
from pathlib import Path
from subprocess import DEVNULL  # noqa: TID251 - a constant
from typing import Any, Final
from urllib.parse import quote
from urllib.request import ProxyHandler, build_opener

import anyio
import anyio.to_thread
from anyio.abc import TaskStatus

from supervisor.api.metrics_listener import MetricsServer, bind_loopback
from supervisor.core.views import QueueView
from supervisor.linux.sampling import Usage
from supervisor.telemetry.metrics import Metrics, MetricsSnapshot

PATIENCE_S: Final = 50.0
"""For its start and its first scrape, which take a few seconds on a slow machine."""

LOOK_AGAIN_S: Final = 0.2

CONFIGURATION: Final = """
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs: [{{job_name: mcp-supervisord, static_configs: [{{targets: ["{target}"]}}]}}]
"""

_without_proxy: Final = build_opener(ProxyHandler({}))


async def collect() -> bytes:
    """A few things that happened, and a name that needs escapes."""
    metrics = Metrics(["git", 'a "quoted" \\ name'], version="0.1.0")
    metrics.started("git", 0.004)
    metrics.started('a "quoted" \\ name', 0.2)
    metrics.call_finished("git", "ok", 0.02)
    return metrics.collect(
        MetricsSnapshot(
            instances={("git", "alive"): 1},
            sessions=1,
            queue=QueueView(starting=0, waiting=0),
            survivors=0,
            usage={"git": Usage(resident_bytes=4096, cpu_seconds_total=0.5)},
        )
    )


def free_port() -> int:
    """A port that is free at this moment."""
    with closing(bind_loopback(("127.0.0.1", 0))) as taken:
        port: int = taken.getsockname()[1]
    return port


def query(port: int, expression: str) -> list[dict[str, Any]]:
    """What the Prometheus at `port` answers; nothing while it does not answer yet."""
    url = f"http://127.0.0.1:{port}/api/v1/query?query={quote(expression)}"
    try:
        with _without_proxy.open(url, timeout=5) as answer:
            found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
    except OSError:
        return []
    return found


async def first_scrape(port: int) -> list[dict[str, Any]]:
    """Every row of ours, once there are some."""
    while True:
        rows = await anyio.to_thread.run_sync(query, port, '{__name__=~"mcp_supervisor_.+"}')
        if rows:
            return rows
        await anyio.sleep(LOOK_AGAIN_S)


async def scrape(program: str, folder: Path, listener: socket.socket) -> list[dict[str, Any]]:
    """Run a Prometheus until it has scraped the listener."""
    port, file = free_port(), folder / "prometheus.yml"
    host, own = listener.getsockname()
    await anyio.Path(file).write_text(CONFIGURATION.format(target=f"{host}:{own}"))
    argv = [
        program,
        f"--config.file={file}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=error",
    ]
    async with await anyio.open_process(argv, stdin=DEVNULL, stdout=None, stderr=None) as process:
        try:
            with anyio.fail_after(PATIENCE_S):
                return await first_scrape(port)
        finally:
            process.terminate()


async def trial(program: str, folder: Path) -> int:
    """Serve, scrape, print."""
    listener = bind_loopback(("127.0.0.1", 0))
    server = MetricsServer(collect)

    async def run(*, task_status: TaskStatus[None]) -> None:
        await server.run_until_stopped(listener, on_serving=task_status.started)

    async with anyio.create_task_group() as tasks:
        await tasks.start(run)
        try:
            rows = await scrape(program, folder, listener)
        except TimeoutError:
            print(f"FAILED: it has scraped nothing within {PATIENCE_S:g} s.")  # noqa: T201
            return 1
        finally:
            server.stop()
    for row in sorted(rows, key=lambda row: sorted(row["metric"].items())):
        names = {k: v for k, v in row["metric"].items() if k not in {"__name__", "job", "instance"}}
        print(row["metric"]["__name__"], json.dumps(names), row["value"][1])  # noqa: T201
    print(f"ok: it scraped {len(rows)} rows.")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(anyio.run(trial, sys.argv[1], Path(sys.argv[2])))
