"""The slow detector of large jobs against streams made of the simulator's windows."""

import copyreg
import time
from collections.abc import Iterable, Sequence
from copy import deepcopy
from functools import cache
from types import MappingProxyType

import numpy as np
import pytest

from faults.detector import Job, JobFabric
from faults.diagnosis import Diagnosis, Direction, FaultClass, Scope
from faults.fabric import Floats
from faults.large_jobs import LargeJobDetector, LargeJobSettings
from faults.monitor import FaultMonitor
from faults.observations import Observation, ProbeReturned
from faults.probe_dedup import MAX_OPEN
from faults.simulator.fault_schedule import FaultEvent, FaultKind
from faults.stragglers import Stragglers, StragglerState
from tests.faults.large_jobs.streams import WINDOW_S, Stream, cluster, job_of, socket

copyreg.pickle(MappingProxyType, lambda frozen: (MappingProxyType, (dict(frozen),)))  # so that states can be copied

HEALTHY = 13  # windows before anything happens
FROM_S = HEALTHY * WINDOW_S
SMALL = cluster()


class Playback:
    """A detector, its stream, and all diagnoses it has reported."""

    def __init__(self, *, leaves: bool = True) -> None:
        job = job_of(SMALL, leaves=leaves)
        self.stream, self.detector = Stream(SMALL, seed=1), LargeJobDetector(job)
        self.reported: dict[tuple[object, ...], Diagnosis] = {}
        self.now: Sequence[Diagnosis] = ()
        self.now_s = 0.0

    def feed(self, observations: Iterable[Observation]) -> None:
        for one in observations:
            while one.at_s > self.now_s + 0.5:
                self.now_s += 0.5
                self.now = self.detector.evaluate(self.now_s)
                self.reported |= {(each.fault, each.scope, each.node, each.switch): each for each in self.now}
            self.detector.observe(one)


@cache
def _healthy(silent: tuple[int, ...], *, leaves: bool) -> Playback:
    playback = Playback(leaves=leaves)
    playback.feed(playback.stream.windows(HEALTHY, silent=silent))
    assert not playback.reported
    return playback


def healthy(silent: tuple[int, ...] = (), *, leaves: bool = True) -> Playback:
    """One minute of a healthy job."""
    return deepcopy(_healthy(silent, leaves=leaves))


def diagnosis_of(
    kind: FaultKind, at: int, factor: float, *, longer: float = 1.3, silent: tuple[int, ...] = (), leaves: bool = True
) -> Diagnosis:
    """The only diagnosis of a job with this fault."""
    playback = healthy(silent, leaves=leaves)
    fault = FaultEvent(kind, at, FROM_S, 1e9, factor)
    playback.feed(playback.stream.windows(10, [fault], silent=silent, longer=longer))
    (diagnosis,) = playback.reported.values()
    assert FROM_S - WINDOW_S <= diagnosis.onset_s <= FROM_S + WINDOW_S
    return diagnosis


def test_a_healthy_job_has_no_diagnoses() -> None:
    playback = healthy()
    playback.feed(playback.stream.windows(24))
    assert not playback.reported


@pytest.mark.parametrize(
    ("kind", "direction"),
    [(FaultKind.SLOW_TX, Direction.TX), (FaultKind.SLOW_RX, Direction.RX), (FaultKind.SLOW_NIC, Direction.BOTH)],
)
def test_a_slow_nic_is_named_with_its_direction(kind: FaultKind, direction: Direction) -> None:
    found = diagnosis_of(kind, 5, 1.5)
    assert (found.fault, found.scope, found.node) == (FaultClass.COMM_SLOW, Scope.NODE, 5)
    assert (found.direction, found.isolate) == (direction, True)
    assert found.detected_s - FROM_S <= 30.0


def test_a_fault_that_does_not_lengthen_steps_isolates_no_node() -> None:
    assert not diagnosis_of(FaultKind.SLOW_TX, 5, 1.5, longer=1.0).isolate


def test_a_slow_leaf_is_reported_by_name_and_isolates_no_node() -> None:
    found = diagnosis_of(FaultKind.LEAF, 1, 1.5)
    assert (found.scope, found.switch, found.node, found.isolate) == (Scope.LEAF, "rack 1", None, False)
    assert found.detected_s - FROM_S <= 30.0


def test_a_slow_nic_is_named_without_known_leaves() -> None:
    assert diagnosis_of(FaultKind.SLOW_TX, 5, 1.5, leaves=False).node == 5


def test_a_straggler_is_named() -> None:
    found = diagnosis_of(FaultKind.STRAGGLER, 7, 1.1, longer=1.4)
    assert (found.fault, found.scope, found.node, found.isolate) == (
        FaultClass.NONCOMM_SLOW, Scope.NODE, 7, True,
    )  # fmt: skip


def test_a_replica_with_more_data_is_no_straggler() -> None:
    playback = healthy()
    playback.feed(playback.stream.windows(20, [FaultEvent(FaultKind.IMBALANCE, 2, FROM_S, 1e9, 1.1)], longer=1.4))
    assert not playback.reported


def test_the_straggler_detector_steps_through_windows_without_observations(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[tuple[float, bool]] = []
    step = Stragglers.step

    def recorded(
        self: Stragglers, state: StragglerState, gaps_s: Floats, to_s: float, *, window_s: float
    ) -> tuple[StragglerState, tuple[Diagnosis, ...]]:
        steps.append((to_s, bool(np.isnan(gaps_s).all())))
        return step(self, state, gaps_s, to_s, window_s=window_s)

    monkeypatch.setattr(Stragglers, "step", recorded)
    detector = healthy().detector
    detector.evaluate(FROM_S + 4 * WINDOW_S + 1.5)
    ends_s = [to_s for to_s, _ in steps]
    gap_s = detector.settings.gap_window_s
    assert ends_s == np.arange(ends_s[0], FROM_S + 4 * WINDOW_S + gap_s, gap_s).tolist()
    assert [unobserved for to_s, unobserved in steps if to_s > FROM_S] == [True] * 8
    detector.evaluate(1e9)  # a long silence does not step through every window
    assert len(steps) < 1000


def test_lost_agents_do_not_hide_a_fault_of_another_node() -> None:
    assert diagnosis_of(FaultKind.SLOW_TX, 5, 1.5, silent=(1, 20, 30)).node == 5


def test_a_whole_leaf_that_falls_silent_is_no_fault() -> None:
    playback = healthy()
    playback.feed(playback.stream.windows(12, silent=np.flatnonzero(SMALL.fabric.leaf == 2).tolist()))
    playback.feed(playback.stream.windows(12))
    assert not playback.reported


def test_a_fault_that_has_ended_is_no_longer_reported() -> None:
    playback = healthy()
    playback.feed(playback.stream.windows(8, [FaultEvent(FaultKind.SLOW_TX, 5, FROM_S, 1e9, 1.5)], longer=1.3))
    assert playback.now
    playback.feed(playback.stream.windows(10))
    assert not playback.now


def test_the_monitor_finds_a_slow_leaf() -> None:
    stream, monitor = Stream(SMALL, seed=1), FaultMonitor(job_of(SMALL))
    slow = FaultEvent(FaultKind.LEAF, 1, FROM_S, 1e9, 1.5)
    for observations in (stream.windows(HEALTHY), stream.windows(8, [slow], longer=1.3)):
        for count, one in enumerate(observations):
            monitor.observe(one)
            if count % 64 == 0:
                monitor.evaluate(one.at_s)
    hardware = [each for each in monitor.diagnoses() if each.scope is not Scope.WORKLOAD]
    assert [(each.scope, each.switch) for each in hardware] == [(Scope.LEAF, "rack 1")]


def polls(nodes: int, peers: int, window: int) -> list[Observation]:
    """Two socket polls of a window in which every node sends to the next few."""
    return [
        Observation(
            window * WINDOW_S + at_s, node, socket((2 * window + poll) * 1e7, (2 * window + poll) * 1e5),
            peer=(node + hop) % nodes,
        )
        for poll, at_s in enumerate((1.0, 3.0))
        for node in range(nodes)
        for hop in range(1, peers + 1)
    ]  # fmt: skip


def test_an_evaluation_of_256_nodes_takes_under_an_eighth_of_a_second() -> None:
    nodes = 256
    detector = LargeJobDetector(
        Job(nodes, tuple(range(nodes)), fabric=JobFabric(tuple(f"{n // 32}" for n in range(nodes))))
    )
    took_s = []
    for window in range(8):
        for one in polls(nodes, 8, window):
            detector.observe(one)
        begun_s = time.process_time()
        detector.evaluate((window + 1) * WINDOW_S + 1.0)
        took_s.append(time.process_time() - begun_s)
    assert min(took_s[4:]) < 0.125  # of 5 s, 2,048 edges; on a machine that others use as well


def test_invalid_observations_do_not_grow_memory() -> None:
    settings = LargeJobSettings(max_pairs=40)
    detector = LargeJobDetector(Job(16, tuple(range(16))), settings)
    rng = np.random.default_rng(5)
    for _ in range(5_000):
        at_s = float(rng.choice([rng.uniform(0.0, 20.0), 1e12, -1e12, np.nan, np.inf]))
        node, peer = (int(each) for each in rng.integers(-2, 18, 2))
        detector.observe(Observation(at_s, node, socket(rng.uniform(0, 1e9), rng.uniform(0, 1e9)), peer=peer))
    assert len(detector) <= 40 * (1 + 4)
    for now_s in (30.0, float("nan"), 1e6):
        detector.evaluate(now_s)
        assert len(detector) <= 40 * (1 + settings.learn_windows)


def test_trains_reported_by_one_end_alone_do_not_grow_memory() -> None:
    settings = LargeJobSettings(max_pairs=40)
    detector = LargeJobDetector(Job(16, tuple(range(16))), settings)
    rng = np.random.default_rng(5)
    for _ in range(5_000):
        node, peer = (int(each) for each in rng.integers(-2, 18, 2))
        detector.observe(Observation(1.0, node, ProbeReturned(64, rng.uniform(0, 1e9), 5.0), peer=peer))
    assert 0 < len(detector) <= 40 * (2 + MAX_OPEN)


def test_one_observation_from_a_clock_far_ahead_does_not_disable_the_detector() -> None:
    detector = LargeJobDetector(job_of(SMALL))
    detector.observe(Observation(1e12, 0, socket(0, 0), peer=1))
    detector.evaluate(1.0)
    for one in Stream(SMALL, seed=1).windows(3):
        detector.observe(one)
        detector.evaluate(one.at_s)
    assert len(detector) > 100
