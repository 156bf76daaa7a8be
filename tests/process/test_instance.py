"""The shell of a stop, with hands that are a fake, under a clock that jumps: no real waiting."""

from dataclasses import replace
from typing import TYPE_CHECKING

import anyio
import pytest
from trio.testing import MockClock

from process.fake_family import FakeFamily
from process.shell import shell_of
from supervisor.core.launch import StopPolicy
from supervisor.core.shutdown_events import AnchorLost, FactSeen, Stage

if TYPE_CHECKING:
    from supervisor.core.report import CleanupReport

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    """Trio, whose clock jumps to the next instant as soon as everybody waits."""
    return "trio", {"clock": MockClock(autojump_threshold=0)}


def stubborn() -> FakeFamily:
    """A server that neither leaves on EOF nor is ended by its relay."""
    return FakeFamily(polite=False)


def silent() -> FakeFamily:
    """The same with a relay that is stopped, and that nothing wakes."""
    family = stubborn()
    family.stop_relay()
    family.stuck = True
    return family


async def test_a_polite_server_is_confirmed_gone_at_once() -> None:
    """No stage is waited for: a stop of a polite server takes what its exit takes."""
    async with shell_of(FakeFamily()) as shell:
        shell.instance.request_stop("stop")
        report = await shell.instance.wait_settled()
        await shell.ended.wait()

        assert report.outcome == "confirmed"
        assert report.elapsed_s == 0.0
        assert shell.verdicts == [("confirmed", 0.0)]
        assert shell.did() == ["close_stdin", "tell stop", "probe_group"]


async def test_the_family_has_the_schedule_before_anything_is_done() -> None:
    """Signals are timed against it, and a drain follows it."""
    seen: list[float] = []
    family = FakeFamily()
    close = family.close_stdin

    def close_stdin() -> None:
        assert family.schedule is not None
        seen.append(family.schedule.deadline_at - family.schedule.requested_at)
        close()

    family.close_stdin = close_stdin  # type: ignore[method-assign] # a spy on the fake
    async with shell_of(family) as shell:
        shell.instance.request_stop("stop")
        await shell.instance.wait_settled()
    assert seen == [5.0]


async def test_a_stubborn_server_is_judged_at_the_deadline_and_not_later() -> None:
    """Ping at SIGKILL, names shortly before the end, the last look, the verdict: 5 s in all."""
    async with shell_of(stubborn()) as shell:
        shell.instance.request_stop("stop")
        report = await shell.instance.wait_settled()

        assert report.outcome == "unconfirmed"
        assert shell.verdicts == [("unconfirmed", 5.0)]
        assert shell.when("tell ping") == [4.0]
        assert shell.when("scan") == [4.88]
        assert shell.when("last_look") == [5.0]
        assert [identity.pid for identity, _ in shell.instance.found] == [103]
        assert "scan_clean" in report.missing


async def test_a_scan_for_names_judges_nothing() -> None:
    """It comes before all else is known: that it finds nobody is no proof."""
    family = silent()
    family.drain_takes = True
    async with shell_of(family) as shell:
        shell.instance.request_stop("stop")
        report = await shell.instance.wait_settled()

        assert shell.instance.found == ()
        assert shell.when("scanned") == [4.88]
        states = {fact.name: fact.state for fact in report.facts}
        assert states["scan_clean"] == "missing"


async def test_what_the_last_look_finds_counts() -> None:
    """The server died in silence just before the deadline; a repeat of the proof is not needed."""
    family = stubborn()
    async with shell_of(family) as shell:
        shell.instance.request_stop("stop")
        await anyio.sleep(4.99)
        with family.unnoticed():
            family.exit_server()
        report = await shell.instance.wait_settled()

    states = {fact.name: fact.state for fact in report.facts}
    assert states["server_exited"] == states["stdout_eof"] == "confirmed"


async def test_what_the_last_look_completes_is_confirmed_and_never_unconfirmed_before() -> None:
    """All was in the kernel at the deadline: no quarantine, no event of one, no amendment."""
    family = stubborn()
    async with shell_of(family) as shell:
        shell.instance.request_stop("stop")
        await anyio.sleep(4.99)
        with family.unnoticed():
            family.exit_server()
        await shell.instance.wait_settled()
        assert shell.verdicts == [("confirmed", 5.0)]


async def test_all_who_ask_join_one_stop_and_get_the_same_report() -> None:
    """Ten requests close stdin once, tell the relay once, and never move the deadline."""
    reports: list[CleanupReport] = []

    async def ask(after_s: float) -> None:
        await anyio.sleep(after_s)
        shell.instance.request_stop("stop")
        reports.append(await shell.instance.wait_settled())

    async with shell_of(stubborn()) as shell:
        async with anyio.create_task_group() as askers:
            for tenth in range(10):
                askers.start_soon(ask, tenth * 0.4)
        assert shell.now() == 5.0
        assert len({id(report) for report in reports}) == 1
        assert len(reports) == 10
        assert shell.did().count("close_stdin") == 1
        assert shell.did().count("tell stop") == 1


async def test_a_request_after_the_verdict_is_answered_at_once() -> None:
    """With the report that there is."""
    async with shell_of(stubborn()) as shell:
        shell.instance.request_stop("stop")
        first = await shell.instance.wait_settled()
        shell.instance.request_stop("shutdown", force=True)
        assert await shell.instance.wait_settled() is first
        assert shell.now() == 5.0


async def test_a_waiter_that_is_cancelled_does_not_take_the_stop_with_it() -> None:
    """A client that hangs up has still asked for the stop."""
    async with shell_of(stubborn()) as shell:
        shell.instance.request_stop("stop")
        with anyio.move_on_after(1.0) as gave_up:
            await shell.instance.wait_settled()
        report = await shell.instance.wait_settled()

        assert gave_up.cancelled_caught
        assert report.outcome == "unconfirmed"
        assert shell.now() == 5.0


async def test_force_moves_the_stages_and_not_the_deadline() -> None:
    """The relay is told again, and asked for a word from then on."""
    async with shell_of(stubborn()) as shell:
        shell.instance.request_stop("stop")
        await anyio.sleep(1.0)
        shell.instance.request_stop("stop", force=True)
        report = await shell.instance.wait_settled()

        assert shell.when("tell stop") == [0.0, 1.0]
        assert shell.when("tell ping") == [1.0]
        assert shell.verdicts == [("unconfirmed", 5.0)]
        assert report.deadline_shortened_by is None


async def test_the_daemons_budget_shortens_the_stop_and_the_report_says_so() -> None:
    """Nothing else may."""
    async with shell_of(stubborn()) as shell:
        shell.instance.request_stop("stop")
        await anyio.sleep(1.0)
        budget_at = shell.instance.started_at + 2.0
        shell.instance.request_stop("shutdown", budget_at=budget_at)
        report = await shell.instance.wait_settled()

        assert shell.verdicts == [("unconfirmed", 2.0)]
        assert report.deadline_shortened_by is not None
        assert report.reason == "stop"


async def test_a_scan_that_takes_long_holds_nothing_up() -> None:
    """It runs beside the shell: the verdict is due at the deadline, with or without names."""
    family = stubborn()
    family.scan_takes_s = 30.0
    async with shell_of(family) as shell:
        shell.instance.request_stop("stop")
        await shell.instance.wait_settled()

        assert shell.verdicts == [("unconfirmed", 5.0)]
        assert shell.instance.found == ()
        await anyio.sleep(30.0)
        assert shell.when("scanned") == [34.88]
        assert len(shell.instance.found) == 1


async def test_a_silent_relay_is_taken_over_and_the_stop_confirmed_within_the_deadline() -> None:
    """Half-way from SIGKILL: kill the group, wake, look, kill the relay, drain, probe, scan."""
    async with shell_of(silent()) as shell:
        shell.instance.request_stop("stop")
        report = await shell.instance.wait_settled()

        assert report.outcome == "confirmed"
        assert shell.now() == 4.5
        assert shell.did(since=4.5) == [
            "kill_group",
            "wake_relay",
            "look_at_group",
            "kill_relay",
            "drain",
            "probe_group",
            "scan",
            "scanned",
        ]


async def test_a_drain_that_takes_its_time_is_judged_at_the_same_deadline() -> None:
    """None of the takeover moves it; what is drained later amends the report."""
    family = silent()
    family.drain_takes = True
    async with shell_of(family) as shell:
        shell.instance.request_stop("stop")
        first = await shell.instance.wait_settled()
        assert (first.outcome, shell.now()) == ("unconfirmed", 5.0)
        assert "descendants_gone" in first.missing

        await anyio.sleep(2.0)
        family.end_drain()
        await shell.ended.wait()
        assert shell.verdicts == [("unconfirmed", 5.0), ("confirmed", 7.0)]


async def test_a_relay_that_was_stopped_is_woken_once_its_server_is_gone() -> None:
    """0.25 s after the exit: woken, SIGTERM due, asked for a word."""
    family = FakeFamily()
    family.stop_relay()
    async with shell_of(family) as shell:
        shell.instance.request_stop("stop")
        report = await shell.instance.wait_settled()

        assert report.outcome == "confirmed"
        assert shell.now() == 0.25
        assert shell.did(since=0.25)[:4] == [
            "wake_relay",
            "tell advance",
            "tell ping",
            "tell ping",
        ]


async def test_a_server_that_dies_is_stopped_for_that_reason() -> None:
    """Whoever waits for the stop hears of it at once."""
    family = stubborn()
    async with shell_of(family) as shell:
        family.exit_server()
        await shell.instance.wait_stopping()
        report = await shell.instance.wait_settled()

        assert (report.reason, report.outcome, shell.now()) == ("crash", "confirmed", 0.0)


async def test_a_lost_anchor_stops_the_instance() -> None:
    """Its relay ends the family meanwhile, without being asked."""
    async with shell_of(FakeFamily()) as shell:
        shell.instance.post(AnchorLost(at=anyio.current_time()))
        report = await shell.instance.wait_settled()
        assert (report.reason, report.outcome) == ("anchor_lost", "confirmed")


async def test_a_lost_relay_stops_the_instance_which_is_drained() -> None:
    """The daemon is the heir."""
    family = FakeFamily()
    async with shell_of(family) as shell:
        family.lose_relay()
        report = await shell.instance.wait_settled()
        assert (report.reason, report.outcome) == ("relay_lost", "confirmed")
        assert shell.did().count("drain") == 1


async def test_output_that_closes_while_the_server_lives_stops_it_after_a_tenth_of_a_second() -> (
    None
):
    """The instance is unusable; a crash would have been reported by then."""
    async with shell_of(FakeFamily()) as shell:
        shell.instance.post(
            FactSeen(at=anyio.current_time(), fact="stdout_eof", state="confirmed", evidence="EOF")
        )
        await shell.instance.wait_stopping()
        assert shell.now() == pytest.approx(0.1)
        assert (await shell.instance.wait_settled()).reason == "output_closed"


async def test_an_unconfirmed_stop_stays_in_custody_and_is_amended() -> None:
    """The verdict is handed out twice: once at the deadline, once for the better."""
    family = stubborn()
    async with shell_of(family) as shell:
        shell.instance.request_stop("stop")
        await shell.instance.wait_stopping()
        during = (shell.instance.stopping, shell.instance.quarantined)
        first = await shell.instance.wait_settled()
        judged = (shell.instance.stopping, shell.instance.quarantined)

        await anyio.sleep(60.0)
        family.exit_server()
        await shell.ended.wait()

        amended = shell.instance.report
        assert amended is not None
        assert (first.amended_at_utc, amended.amended_at_utc) == (None, "later")
        assert shell.verdicts == [("unconfirmed", 5.0), ("confirmed", 65.0)]
        ended = (shell.instance.stopping, shell.instance.quarantined)
        assert (during, judged, ended) == ((True, False), (False, True), (False, False))


async def test_a_quarantined_instance_costs_one_look_a_second() -> None:
    """Ten minutes of custody are 600 looks at what nothing announces, not a busy loop."""
    family = FakeFamily()
    family.probe_says = "contradicted"
    async with shell_of(family) as shell:
        shell.instance.request_stop("stop")
        await shell.instance.wait_settled()
        assert shell.instance.quarantined
        await anyio.sleep(600.0)
        looks = [at for at in shell.when("probe_group") if at > 5.0]
        assert 595 <= len(looks) <= 600


async def test_an_instance_that_is_given_up_is_let_go() -> None:
    """An operator's word ends custody; its report stays what the operator was told."""
    async with shell_of(stubborn()) as shell:
        shell.instance.request_stop("stop")
        report = await shell.instance.wait_settled()
        released = replace(report, released=True)

        shell.instance.give_up(released)
        await shell.ended.wait()

        assert shell.now() == 5.0
        assert shell.instance.report is released
        assert not shell.instance.quarantined
        assert shell.instance.state.stage is Stage.UNCONFIRMED
        assert shell.verdicts == [("unconfirmed", 5.0)]


async def test_a_shell_that_has_nothing_to_do_waits() -> None:
    """No timer runs for an instance that is alive: a day passes in one jump."""
    async with shell_of(FakeFamily()) as shell:
        await anyio.sleep(86400.0)
        assert shell.family.did == []


async def test_a_stop_without_any_time_is_judged_at_once() -> None:
    """A deadline of zero still gets its last look."""
    none = StopPolicy(deadline_s=0.0, term_after_s=0.0, kill_after_s=0.0)
    async with shell_of(stubborn(), none) as shell:
        shell.instance.request_stop("stop")
        await shell.instance.wait_settled()
        assert shell.verdicts == [("unconfirmed", 0.0)]
        assert shell.did() == ["close_stdin", "tell stop", "last_look"]
