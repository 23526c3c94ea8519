"""From traffic to decision: emulated engines, a real Prometheus, the service and controllers as processes."""

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from api.schemas.planning_loops import LoopPhase, PlanningLoopStatus
from deploy.emulator.trace_player import Change, PlayReport, TracePlayer, changed
from fleet.traces import Trace
from tests.testbed.planning import GPU, SCALE, WINDOW_S, PlanningScene, planning_scene, traffic
from tests.testbed.server import StartServer
from tests.testbed.waiting import wait_for

pytestmark = pytest.mark.prometheus

DECIDED = (LoopPhase.STEADY, LoopPhase.APPLIED)


@pytest.fixture
def scene(prometheus_programs: Path, start_server: StartServer, tmp_path: Path) -> Iterator[PlanningScene]:
    with planning_scene(prometheus_programs, start_server, folder=tmp_path) as found:
        yield found


@contextmanager
def played(scene: PlanningScene, trace: Trace) -> Iterator[list[PlayReport]]:
    """Replay a trace beside the block, and wait for its end."""
    reports: list[PlayReport] = []
    player = TracePlayer(trace=trace, url=scene.fleet.url, time_scale=SCALE)
    with ThreadPoolExecutor(max_workers=1) as threads:
        future = threads.submit(lambda: reports.append(asyncio.run(player.play())))
        yield reports
        future.result()


def wanted(status: PlanningLoopStatus) -> int:
    return status.wanted.get("chat", {}).get(GPU, 0)


def windows(count: float) -> float:
    """Model seconds of this many windows."""
    return count * WINDOW_S * SCALE


class TestShift:
    def test_a_doubled_rate_and_tripled_prompts_are_followed_within_two_windows(self, scene: PlanningScene) -> None:
        shift_s = windows(9)
        trace = changed(traffic(rate_rps=5, seconds=windows(14)), Change(from_s=shift_s, rate=2, prompt=3))
        scene.register()
        scene.start_controller()
        scene.start_autoscaler()
        with played(scene, trace) as reports:
            before = scene.wait_for_phase(*DECIDED, after=6).wanted["chat"][GPU]
            first = len(scene.statuses)
            after = wait_for(
                lambda: scene.statuses,
                lambda found: any(wanted(each) >= 1.8 * before for each in found[first:]),
                what="more replicas after the shift",
                timeout_s=60,
            )
        (report,) = reports
        shifted = [each.demand["chat"].arrivals_rps for each in after if "chat" in each.demand]
        position = next(n for n, rate in enumerate(shifted) if rate > 1.3 * 5 * SCALE)
        followed = [wanted(each) for each in after if "chat" in each.demand][position:]
        assert max(followed[:2]) >= 1.8 * before  # the first window with the new load, or the next
        counts = scene.fleet.counts.requests
        assert (counts.dropped, report.failed) == (0, 0)

    def test_a_steady_load_is_left_alone(self, scene: PlanningScene) -> None:
        scene.register()
        scene.start_controller()
        scene.start_autoscaler()
        with played(scene, traffic(rate_rps=5, seconds=windows(12))):
            scene.wait_for_phase(*DECIDED, after=5)
            first = scene.changes
            wait_for(lambda: scene.statuses, lambda found: len(found) >= 10, what="ten windows", timeout_s=60)
        assert scene.changes - first <= 1
        assert scene.fleet.counts.requests.dropped == 0


class TestFailures:
    """Each failure: the last decision stays, the report states the reason, and the loop goes on by itself."""

    def test_a_prometheus_that_stops_and_returns(self, scene: PlanningScene) -> None:
        self.held_and_resumed(scene, begin=scene.kill_prometheus, end=scene.restart_prometheus, reason="unreachable: ")

    def test_a_prometheus_that_does_not_answer_in_time(self, scene: PlanningScene) -> None:
        self.held_and_resumed(
            scene, begin=scene.pause_prometheus, end=scene.resume_prometheus, reason="did not respond within"
        )

    def test_a_replica_that_restarts_with_its_counters(self, scene: PlanningScene) -> None:
        def restart() -> None:
            scene.fleet.restart(scene.fleet.status.options["l4"].replicas[0].name)

        self.held_and_resumed(scene, begin=restart, end=lambda: None, reason="reset: ")

    def held_and_resumed(
        self, scene: PlanningScene, *, begin: Callable[[], None], end: Callable[[], None], reason: str
    ) -> None:
        scene.register()
        scene.start_controller()
        scene.start_autoscaler()
        with played(scene, traffic(rate_rps=5, seconds=windows(16))):
            before = scene.wait_for_phase(*DECIDED, after=5)
            begin()
            held = scene.wait_for_phase(LoopPhase.HOLDING)
            end()
            assert any(reason in problem for problem in held.problems)
            assert held.wanted == before.wanted
            resumed = scene.wait_for_phase(*DECIDED)
        assert resumed.problems == ()


class TestSources:
    def test_two_sources_that_disagree_are_not_acted_on(self, scene: PlanningScene) -> None:
        half = scene.source(selector={"pod": ".*-[02468]"})  # of three replicas, two
        scene.register(scene.source(), half)
        scene.start_controller()
        scene.start_autoscaler()
        with played(scene, traffic(rate_rps=5, seconds=windows(6))):
            held = scene.wait_for_phase(LoopPhase.HOLDING)
        assert any("contradictory: source 1 counts" in problem for problem in held.problems)
        assert held.wanted == {}


class TestLeader:
    def test_a_killed_controller_is_succeeded_without_a_second_change(self, scene: PlanningScene) -> None:
        scene.register()
        first = scene.start_controller()
        scene.start_autoscaler()
        with played(scene, traffic(rate_rps=5, seconds=windows(16))):
            scene.wait_for_phase(*DECIDED, after=5)
            os.kill(first.pid, signal.SIGKILL)
            first.popen.wait()
            scene.start_controller()
            decided = len(scene.statuses)
            wait_for(
                lambda: scene.statuses,
                lambda found: len(found) >= decided + 4,
                what="windows of the successor",
                timeout_s=60,
            )
        assert scene.changes <= 2
        ends = [status.window_end for status in scene.statuses]
        assert ends == sorted(set(ends), key=lambda end: (end is None, end))  # each window once
