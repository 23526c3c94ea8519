"""From traffic to decision: emulated engines, a real Prometheus, the service and controllers as processes."""

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path

import pytest

from api.schemas.planning_loops import LoopPhase, PlanningLoopStatus
from deploy.emulator.trace_player import Change, TracePlayer, changed
from fleet.traces import Trace
from tests.testbed.planning import GPU, OPTION, SCALE, WINDOW_S, PlanningScene, planning_scene, traffic
from tests.testbed.server import StartServer
from tests.testbed.waiting import wait_for

pytestmark = pytest.mark.prometheus

DECIDED = (LoopPhase.STEADY, LoopPhase.APPLIED)


@pytest.fixture
def scene(prometheus_programs: Path, start_server: StartServer, tmp_path: Path) -> Iterator[PlanningScene]:
    with planning_scene(prometheus_programs, start_server, folder=tmp_path) as found:
        yield found


@contextmanager
def played(scene: PlanningScene, trace: Trace) -> Iterator[TracePlayer]:
    """Replay a trace beside the block, and end it with the block."""
    player = TracePlayer(trace=trace, url=scene.fleet.url, time_scale=SCALE)
    loop = asyncio.new_event_loop()
    task = loop.create_task(player.play())

    def run() -> None:
        with suppress(asyncio.CancelledError):
            loop.run_until_complete(task)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield player
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join()
        loop.close()


def wanted(status: PlanningLoopStatus) -> int:
    return status.wanted.get("chat", {}).get(GPU, 0)


def reversals(counts: list[int]) -> int:
    """How often growth and shrinkage follow each other."""
    steps = [now - before for before, now in pairwise(counts) if now != before]
    return sum(now * before < 0 for before, now in pairwise(steps))


def windows(count: float) -> float:
    """Model seconds of this many windows."""
    return count * WINDOW_S * SCALE


class TestShift:
    def test_a_doubled_rate_and_tripled_prompts_are_followed_within_two_windows(self, scene: PlanningScene) -> None:
        shift_s = windows(9)
        trace = changed(traffic(rate_rps=5, seconds=windows(20)), Change(from_s=shift_s, rate=2, prompt=3))
        scene.register()
        scene.start_controller()
        scene.start_autoscaler()
        with played(scene, trace) as player:
            before = wanted(scene.wait_for_phase(*DECIDED, after=6))
            first = len(scene.statuses)
            after = wait_for(
                lambda: scene.statuses,
                lambda found: any(wanted(each) >= 1.8 * before for each in found[first:]),
                what="more replicas after the shift",
                timeout_s=60,
            )
            failed = player.report(seconds=1.0).failed
        shifted = [each for each in after if "chat" in each.demand]
        position = next(n for n, each in enumerate(shifted) if each.demand["chat"].arrivals_rps > 1.3 * 5 * SCALE)
        assert max(map(wanted, shifted[position : position + 2])) >= 1.8 * before
        assert (scene.fleet.counts.requests.dropped, failed) == (0, 0)


class TestSteadyLoad:
    def test_is_left_alone_also_by_the_successor_of_a_killed_controller(self, scene: PlanningScene) -> None:
        scene.register()
        first = scene.start_controller()
        scene.start_autoscaler()
        with played(scene, traffic(rate_rps=5, seconds=windows(40))):
            scene.wait_for_phase(*DECIDED, after=5)
            decided = len(scene.statuses)
            self.wait_for_windows(scene, decided + 3)
            os.kill(first.pid, signal.SIGKILL)
            first.popen.wait()
            scene.start_controller()
            self.wait_for_windows(scene, decided + 7)
        counts = [wanted(each) for each in scene.statuses[decided - 1 :] if each.wanted]
        assert reversals(counts) <= 1  # a forecast narrows while its history is short
        assert scene.fleet.counts.requests.dropped == 0
        ends = [status.window_end for status in scene.statuses if status.window_end is not None]
        assert ends == sorted(set(ends))  # each window once

    def wait_for_windows(self, scene: PlanningScene, count: int) -> None:
        wait_for(lambda: scene.statuses, lambda found: len(found) >= count, what=f"{count} windows", timeout_s=60)


class TestFailures:
    def test_the_last_decision_stays_until_the_demand_is_usable_again(self, scene: PlanningScene) -> None:
        scene.register()
        scene.start_controller()
        scene.start_autoscaler()
        with played(scene, traffic(rate_rps=5, seconds=windows(60))):
            scene.wait_for_phase(*DECIDED, after=5)
            for begin, end, reason in (
                (scene.pause_prometheus, scene.resume_prometheus, "did not respond within"),
                (self.restart_replica(scene), lambda: None, "reset: "),
                (scene.kill_prometheus, scene.restart_prometheus, "unreachable: "),
            ):
                before = scene.wait_for_phase(*DECIDED)
                begin()
                held = scene.wait_for_phase(LoopPhase.HOLDING, problem=reason)
                end()
                assert held.wanted == before.wanted
                resumed = scene.wait_for_phase(*DECIDED)
                assert resumed.problems == ()

    def restart_replica(self, scene: PlanningScene) -> Callable[[], None]:
        return lambda: scene.fleet.restart(scene.fleet.status.options[OPTION].replicas[0].name)

    def test_two_sources_that_disagree_are_not_acted_on(self, scene: PlanningScene) -> None:
        one_of_three = scene.source(selector={"pod": ".*-0"})
        scene.register(scene.source(), one_of_three)
        scene.start_controller()
        with played(scene, traffic(rate_rps=5, seconds=windows(20))):
            held = scene.wait_for_phase(LoopPhase.HOLDING, problem="contradictory: source 1 counts")
        assert held.wanted == {}
