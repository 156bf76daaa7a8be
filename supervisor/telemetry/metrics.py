"""What Prometheus reads: counters that grow as things happen, gauges from a snapshot.

Label values come from closed sets only: names of configured servers, codes, names of facts,
signals and errnos. Whatever is not in its set is counted under `OTHER`, so that neither a text
from outside nor a number of series without bound can get in.

Everything is prefixed `mcp_supervisor_`. Times are seconds, sizes are bytes.

Source: design section 14; Prometheus exposition format 0.0.4.
"""

import errno
import platform
import signal
from collections import Counter as Sums
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Final, Literal, get_args

from prometheus_client import CollectorRegistry, Info, disable_created_metrics, generate_latest
from prometheus_client import Counter as Count
from prometheus_client import Histogram as Spans
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector
from typing_extensions import override

from supervisor.core.report import CleanupReport, FactName
from supervisor.core.views import InstanceState, QueueView
from supervisor.linux.sampling import Usage
from supervisor.telemetry.tallies import SpanTallies, SpanTally, Tallies, Tally

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4
PREFIX: Final = "mcp_supervisor"

OTHER: Final = "_other"
"""In place of a value that is not in its set, such as a server that is no longer configured."""

_BUCKETS_S: Final[Mapping[str, tuple[float, ...]]] = {
    # around the 5 ms that a start takes here, up to the patience for a slow exec
    "start": (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
    # the stages of the default policy, one just above its deadline, and longer deadlines
    "stop": (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 5.1, 10.0, 30.0),
    # from a local look-up to beyond the default request timeout of a minute
    "call": (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0),
}

ExitKind = Literal["clean", "error", "signal", "output_closed", "helper_lost", "unknown"]
"""`unknown`: it exited, but nobody could wait for it."""

StopVerdict = Literal["confirmed", "unconfirmed", "amended", "released"]
"""`amended` and `released` follow an `unconfirmed` of the same instance."""

StartOutcome = Literal["started", "failed"]
CallOutcome = Literal["ok", "tool_error", "error", "timed_out", "cancelled", "server_gone"]
Direction = Literal["to_server", "from_server"]
DropKind = Literal["late_answer", "unasked_answer", "nobody_attached", "too_long", "queue_full"]

_SIGNALS: Final = frozenset(number.name for number in signal.Signals)
_EXITS_ALONE: Final[Mapping[str, ExitKind]] = {
    "output_closed": "output_closed",
    "relay_lost": "helper_lost",
    "anchor_lost": "helper_lost",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSnapshot:
    """What is, at the moment of a scrape.

    Attributes:
        instances: how many, by server and state.
        sessions: how many sessions hold an instance.
        queue: starts that run and starts that wait.
        survivors: processes that are known to be alive after an unconfirmed cleanup.
        usage: memory and CPU time by server.
        log_dropped_bytes: stderr that no log file took, by server; only ever grows.
    """

    instances: Mapping[tuple[str, InstanceState], int]
    sessions: int
    queue: QueueView
    survivors: int
    usage: Mapping[str, Usage] = field(default_factory=dict[str, Usage])
    log_dropped_bytes: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True)
class _Counted:
    """What was counted of an unconfirmed cleanup, so that its amendment adds only what is new."""

    exited: bool = False
    failed_signals: int = 0
    leftovers: int = 0


class Metrics:
    """The counters of one run of the daemon; every method may be called from any thread.

    Args:
        servers: names of the configured servers: the closed set of the label `server`.
        version: ours.
    """

    def __init__(self, servers: Iterable[str], *, version: str) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call] # they double the rows for nothing
        self._servers: frozenset[str] = frozenset()
        self._unconfirmed: dict[str, _Counted] = {}  # bounded: each of them holds a slot
        self._channels: dict[tuple[str, Direction], Tally] = {}  # bounded: of configured servers
        self._of_calls: dict[tuple[str, CallOutcome], tuple[Tally, SpanTally]] = {}  # likewise
        self._registry = CollectorRegistry()
        what = "Version of the daemon and of its Python."
        build = Info("build", what, namespace=PREFIX, registry=self._registry)
        build.info({"version": version, "python": platform.python_version()})
        self._starts = self._count("starts", "Starts of servers.", "server", "outcome")
        self._exits = self._count("exits", "Servers that exited.", "server", "kind")
        self._restarts = self._count("restarts", "Starts after a stop or a death.", "server")
        self._stops = self._count("stops", "Verdicts on cleanups.", "server", "outcome")
        self._swept = self._count("swept", "Families of an earlier run, swept.", "outcome")
        self._stop_spans = self._spans("stop", "From the stop request to its verdict.")
        self._start_spans = self._spans("start", "From the request to a running server.")
        self._missing = self._count("missing_facts", "Facts without proof.", "fact")
        self._failed = self._count("failed_signals", "Signals refused.", "signal", "errno")
        self._leftovers = self._count("leftovers_ended", "Ended after their server.", "server")
        self._orphans = self._count("adopted_orphans", "Orphans that helpers or daemon adopted.")
        self._calls = self._tallies("calls", "Tool calls that ended.", "server", "outcome")
        self._call_spans = self._span_tallies("call", "How long tool calls took.", "server")
        self._bytes = self._tallies("channel_bytes", "Bytes of MCP.", "server", "direction")
        self._strays = self._count("stray_lines", "Lines that are no JSON-RPC.", "server")
        self._drops = self._count("dropped_messages", "Messages dropped.", "server", "kind")
        self.know_servers(servers)

    def know_servers(self, servers: Iterable[str]) -> None:
        """Take these as the configured servers from now on; what was counted stays."""
        self._servers = frozenset(servers)
        self._channels.clear()
        self._of_calls.clear()
        # an alert on the first unconfirmed stop needs the zero before it
        for server in map(_readable, self._servers):
            for started in get_args(StartOutcome):
                self._starts.labels(server, started)
            for verdict in get_args(StopVerdict):
                self._stops.labels(server, verdict)
            self._restarts.labels(server)

    # What happened to processes

    def started(self, server: str, seconds: float) -> None:
        """A server runs, `seconds` after it was asked for."""
        self._starts.labels(self._server(server), "started").inc()
        self._start_spans.observe(seconds)

    def start_failed(self, server: str) -> None:
        """A server could not be started."""
        self._starts.labels(self._server(server), "failed").inc()

    def restarted(self, server: str) -> None:
        """A server runs again, whoever wanted that; `started` is called as well."""
        self._restarts.labels(self._server(server)).inc()

    def stopped(self, report: CleanupReport) -> None:
        """A verdict is in, was amended, or the instance was released: call it for each report."""
        verdict = _verdict(report)
        before = self._unconfirmed.pop(report.instance, None)
        if before is None:
            self._stop_spans.observe(report.elapsed_s)
            self._count_missing(report)
        counted = self._count_cleanup(report, before or _Counted())
        if verdict == "unconfirmed":
            self._unconfirmed[report.instance] = counted
        self._stops.labels(self._server(report.server), verdict).inc()

    def swept(self, report: CleanupReport) -> None:
        """A family of an earlier run was swept at the start; its stop took no time of ours."""
        self._swept.labels(report.outcome).inc()
        self._count_missing(report)
        self._count_cleanup(report, _Counted(exited=True))  # when it exited nobody knows
        self._stops.labels(self._server(report.server), _verdict(report)).inc()

    def orphans_adopted(self, count: int) -> None:
        """`count` processes lost their parent and came to a helper or to the daemon."""
        self._orphans.inc(count)

    # What happened on the byte channel

    def call_finished(self, server: str, outcome: CallOutcome, seconds: float) -> None:
        """A tool call ended, `seconds` after it came."""
        tallies = self._of_calls.get((server, outcome))
        if tallies is None:  # finding them costs more than counting
            label = self._server(server)
            counted = self._calls.row(label, _of(get_args(CallOutcome), outcome))
            tallies = counted, self._call_spans.row(label)
            if server in self._servers:
                self._of_calls[server, outcome] = tallies
        counted, spans = tallies
        counted.add(1)
        spans.observe(seconds)

    def bytes_moved(self, server: str, direction: Direction, count: int) -> None:
        """`count` bytes went to a server's stdin, or came from its stdout."""
        tally = self._channels.get((server, direction))
        if tally is None:
            known = _of(get_args(Direction), direction)
            tally = self._bytes.row(self._server(server), known)
            if server in self._servers and known == direction:
                self._channels[server, direction] = tally
        tally.add(count)

    def stray_lines(self, server: str, count: int) -> None:
        """A server wrote `count` lines that are no JSON-RPC."""
        self._strays.labels(self._server(server)).inc(count)

    def dropped(self, server: str, kind: DropKind) -> None:
        """A message of or for a server was dropped."""
        self._drops.labels(self._server(server), _of(get_args(DropKind), kind)).inc()

    # What Prometheus asks for

    def collect(self, snapshot: MetricsSnapshot) -> bytes:
        """Everything in the text format, of `CONTENT_TYPE`.

        Blocks: about 20 us a row; with hundreds of servers call it in a worker thread.
        """
        now = CollectorRegistry()  # of its own, so that two scrapes at once do not mix
        now.register(_Gauges(snapshot, self._servers))
        return generate_latest(self._registry) + generate_latest(now)

    def _count_missing(self, report: CleanupReport) -> None:
        for fact in report.missing:
            self._missing.labels(_of(get_args(FactName), fact)).inc()

    def _count_cleanup(self, report: CleanupReport, before: _Counted) -> _Counted:
        kind = None if before.exited else exit_kind(report)
        if kind is not None:
            self._exits.labels(self._server(report.server), kind).inc()
        for failed in report.failed_signals[before.failed_signals :]:
            reason = errno.errorcode.get(failed.errno or 0, OTHER)
            self._failed.labels(_of(_SIGNALS, failed.signal), reason).inc()
        leftovers = len(report.leftovers_ended)
        more = max(0, leftovers - before.leftovers)
        self._leftovers.labels(self._server(report.server)).inc(more)
        return _Counted(before.exited or kind is not None, len(report.failed_signals), leftovers)

    def _server(self, name: str) -> str:
        return _readable(_of(self._servers, name))

    def _count(self, name: str, what: str, *labels: str) -> Count:
        return Count(name, what, labels, namespace=PREFIX, registry=self._registry)

    def _tallies(self, name: str, what: str, *labels: str) -> Tallies:
        tallies = Tallies(f"{PREFIX}_{name}", what, labels)
        self._registry.register(tallies)
        return tallies

    def _span_tallies(self, name: str, what: str, *labels: str) -> SpanTallies:
        full_name = f"{PREFIX}_{name}_duration_seconds"
        tallies = SpanTallies(full_name, what, labels, _BUCKETS_S[name])
        self._registry.register(tallies)
        return tallies

    def _spans(self, name: str, what: str, *labels: str) -> Spans:
        return Spans(
            f"{name}_duration_seconds",
            what,
            labels,
            namespace=PREFIX,
            registry=self._registry,
            buckets=_BUCKETS_S[name],
        )


class _Gauges(Collector):
    """The rows of one snapshot."""

    def __init__(self, snapshot: MetricsSnapshot, servers: frozenset[str]) -> None:
        self._snapshot = snapshot
        self._servers = servers

    @override
    def collect(self) -> Iterator[Metric]:
        now = self._snapshot
        yield self._instances()
        for name, what, value in (
            ("sessions", "Sessions that hold an instance.", now.sessions),
            ("queue_starting", "Starts under way.", now.queue.starting),
            ("queue_waiting", "Starts that wait for their turn.", now.queue.waiting),
            ("survivors", "Processes alive after an unconfirmed cleanup.", now.survivors),
        ):
            yield GaugeMetricFamily(f"{PREFIX}_{name}", what, value=value)
        resident = {server: usage.resident_bytes for server, usage in now.usage.items()}
        cpu_s = {server: usage.cpu_seconds_total for server, usage in now.usage.items()}
        what = "Resident memory of all processes of a server; shared pages count for each."
        yield self._by_server(GaugeMetricFamily, "server_resident_bytes", what, resident)
        what = "CPU time of all processes of a server."
        yield self._by_server(CounterMetricFamily, "server_cpu_seconds", what, cpu_s)
        what = "Bytes of stderr that the log file did not take."
        dropped = now.log_dropped_bytes
        yield self._by_server(CounterMetricFamily, "log_dropped_bytes", what, dropped)

    def _instances(self) -> Metric:
        counts = Sums(dict.fromkeys(product(self._servers, get_args(InstanceState)), 0))
        for (server, state), count in self._snapshot.instances.items():
            counts[_of(self._servers, server), _of(get_args(InstanceState), state)] += count
        what = "Families of processes that are not confirmed gone."
        rows = GaugeMetricFamily(f"{PREFIX}_instances", what, labels=["server", "state"])
        for (server, state), count in sorted(counts.items()):
            rows.add_metric([_readable(server), state], count)
        return rows

    def _by_server(
        self,
        kind: type[GaugeMetricFamily | CounterMetricFamily],
        name: str,
        what: str,
        values: Mapping[str, float],
    ) -> Metric:
        sums = dict[str, float]()
        for server, value in values.items():
            label = _of(self._servers, server)
            sums[label] = sums.get(label, 0) + value
        rows = kind(f"{PREFIX}_{name}", what, labels=["server"])
        for server, value in sorted(sums.items()):
            rows.add_metric([_readable(server)], value)
        return rows


def exit_kind(report: CleanupReport) -> ExitKind | None:
    """How the server of a report ended, or None when it never ran or its end is not proved."""
    proved = {fact.name for fact in report.facts if fact.state == "confirmed"}
    if "server_exited" not in proved:
        return None
    if report.reason in _EXITS_ALONE:
        return _EXITS_ALONE[report.reason]
    if report.exit.signal is not None:
        return "signal"
    if report.exit.code is None:
        return "unknown"
    return "clean" if report.exit.code == 0 else "error"


def _verdict(report: CleanupReport) -> StopVerdict:
    if report.released:
        return "released"
    return report.outcome if report.amended_at_utc is None else "amended"


def _of(known: Collection[str], value: str) -> str:
    return value if value in known else OTHER


def _readable(name: str) -> str:
    """A configured name, its control characters and lone surrogates written as escapes."""
    if name.isprintable():
        return name
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in name
    )
