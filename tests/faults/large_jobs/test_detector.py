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
from faults.large_jobs import JobwideSettings, LargeJobDetector
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


class Played:
    """A detector, the stream it is told, and all it has said."""

    def __init__(self, *, leaves: bool = True) -> None:
        job = job_of(SMALL, leaves=leaves)
        self.stream, self.detector = Stream(SMALL, seed=1), LargeJobDetector(job)
        self.said: dict[tuple[object, ...], Diagnosis] = {}
        self.now: Sequence[Diagnosis] = ()
        self.now_s = 0.0

    def tell(self, observations: Iterable[Observation]) -> None:
        for one in observations:
            while one.at_s > self.now_s + 0.5:
                self.now_s += 0.5
                self.now = self.detector.evaluate(self.now_s)
                self.said |= {(each.fault, each.scope, each.node, each.switch): each for each in self.now}
            self.detector.observe(one)


@cache
def _healthy(unheard: tuple[int, ...], *, leaves: bool) -> Played:
    played = Played(leaves=leaves)
    played.tell(played.stream.windows(HEALTHY, unheard=unheard))
    assert not played.said
    return played


def healthy(unheard: tuple[int, ...] = (), *, leaves: bool = True) -> Played:
    """A minute of a job that is well."""
    return deepcopy(_healthy(unheard, leaves=leaves))


def happened(
    what: FaultKind, at: int, factor: float, *, longer: float = 1.3, unheard: tuple[int, ...] = (), leaves: bool = True
) -> Diagnosis:
    """The only verdict on a job to which this happens."""
    played = healthy(unheard, leaves=leaves)
    fault = FaultEvent(what, at, FROM_S, 1e9, factor)
    played.tell(played.stream.windows(10, [fault], unheard=unheard, longer=longer))
    (diagnosis,) = played.said.values()
    assert FROM_S - WINDOW_S <= diagnosis.onset_s <= FROM_S + WINDOW_S
    return diagnosis


def test_a_healthy_job_is_silent() -> None:
    played = healthy()
    played.tell(played.stream.windows(24))
    assert not played.said


@pytest.mark.parametrize(
    ("what", "direction"),
    [(FaultKind.SLOW_TX, Direction.TX), (FaultKind.SLOW_RX, Direction.RX), (FaultKind.SLOW_NIC, Direction.BOTH)],
)
def test_a_slow_nic_is_named_with_its_direction(what: FaultKind, direction: Direction) -> None:
    found = happened(what, 5, 1.5)
    assert (found.fault, found.scope, found.node) == (FaultClass.COMM_SLOW, Scope.NODE, 5)
    assert (found.direction, found.isolate) == (direction, True)
    assert found.detected_s - FROM_S <= 30.0


def test_nobody_is_to_be_taken_out_for_what_steps_do_not_feel() -> None:
    assert not happened(FaultKind.SLOW_TX, 5, 1.5, longer=1.0).isolate


def test_a_slow_leaf_is_named_by_its_name_and_nobody_isolated() -> None:
    found = happened(FaultKind.LEAF, 1, 1.5)
    assert (found.scope, found.switch, found.node, found.isolate) == (Scope.LEAF, "rack 1", None, False)
    assert found.detected_s - FROM_S <= 30.0


def test_without_leaves_a_slow_nic_is_named_all_the_same() -> None:
    assert happened(FaultKind.SLOW_TX, 5, 1.5, leaves=False).node == 5


def test_a_straggler_is_named() -> None:
    found = happened(FaultKind.STRAGGLER, 7, 1.1, longer=1.4)
    assert (found.fault, found.scope, found.node, found.isolate) == (
        FaultClass.NONCOMM_SLOW, Scope.NODE, 7, True,
    )  # fmt: skip


def test_a_replica_with_more_data_is_no_straggler() -> None:
    played = healthy()
    played.tell(played.stream.windows(20, [FaultEvent(FaultKind.IMBALANCE, 2, FROM_S, 1e9, 1.1)], longer=1.4))
    assert not played.said


def test_time_passes_for_stragglers_where_nobody_says_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[float, bool]] = []
    step = Stragglers.step

    def recorded(
        self: Stragglers, state: StragglerState, gaps_s: Floats, to_s: float, *, window_s: float
    ) -> tuple[StragglerState, tuple[Diagnosis, ...]]:
        told.append((to_s, bool(np.isnan(gaps_s).all())))
        return step(self, state, gaps_s, to_s, window_s=window_s)

    monkeypatch.setattr(Stragglers, "step", recorded)
    detector = healthy().detector
    detector.evaluate(FROM_S + 4 * WINDOW_S + 1.5)
    ends_s = [to_s for to_s, _ in told]
    gap_s = detector.settings.gap_window_s
    assert ends_s == np.arange(ends_s[0], FROM_S + 4 * WINDOW_S + gap_s, gap_s).tolist()
    assert [silent for to_s, silent in told if to_s > FROM_S] == [True] * 8
    detector.evaluate(1e9)  # a day without a word is not worked through
    assert len(told) < 1000


def test_lost_agents_hide_nobody_else() -> None:
    assert happened(FaultKind.SLOW_TX, 5, 1.5, unheard=(1, 20, 30)).node == 5


def test_a_whole_pod_that_falls_silent_is_no_fault() -> None:
    played = healthy()
    played.tell(played.stream.windows(12, unheard=np.flatnonzero(SMALL.fabric.leaf == 2).tolist()))
    played.tell(played.stream.windows(12))
    assert not played.said


def test_a_fault_that_is_over_is_taken_back() -> None:
    played = healthy()
    played.tell(played.stream.windows(8, [FaultEvent(FaultKind.SLOW_TX, 5, FROM_S, 1e9, 1.5)], longer=1.3))
    assert played.now
    played.tell(played.stream.windows(10))
    assert not played.now


def test_the_watcher_finds_a_leaf_by_it() -> None:
    stream, watcher = Stream(SMALL, seed=1), FaultMonitor(job_of(SMALL))
    slow = FaultEvent(FaultKind.LEAF, 1, FROM_S, 1e9, 1.5)
    for observations in (stream.windows(HEALTHY), stream.windows(8, [slow], longer=1.3)):
        for count, one in enumerate(observations):
            watcher.observe(one)
            if count % 64 == 0:
                watcher.evaluate(one.at_s)
    hardware = [each for each in watcher.diagnoses() if each.scope is not Scope.WORKLOAD]
    assert [(each.scope, each.switch) for each in hardware] == [(Scope.LEAF, "rack 1")]


def looks(nodes: int, peers: int, window: int) -> list[Observation]:
    """Every node sends to the next few: two looks."""
    return [
        Observation(
            window * WINDOW_S + at_s, node, socket((2 * window + look) * 1e7, (2 * window + look) * 1e5),
            peer=(node + hop) % nodes,
        )
        for look, at_s in enumerate((1.0, 3.0))
        for node in range(nodes)
        for hop in range(1, peers + 1)
    ]  # fmt: skip


def test_a_judgement_of_256_nodes_takes_little() -> None:
    nodes = 256
    detector = LargeJobDetector(
        Job(nodes, tuple(range(nodes)), fabric=JobFabric(tuple(f"{n // 32}" for n in range(nodes))))
    )
    took_s = []
    for window in range(8):
        for one in looks(nodes, 8, window):
            detector.observe(one)
        begun_s = time.process_time()
        detector.evaluate((window + 1) * WINDOW_S + 1.0)
        took_s.append(time.process_time() - begun_s)
    assert min(took_s[4:]) < 0.125  # of 5 s, 2,048 edges; on a machine that others use as well


def test_memory_does_not_grow_with_what_is_wrong_in_a_stream() -> None:
    settings = JobwideSettings(most_pairs=40)
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


def test_memory_does_not_grow_with_trains_that_one_end_alone_tells_of() -> None:
    settings = JobwideSettings(most_pairs=40)
    detector = LargeJobDetector(Job(16, tuple(range(16))), settings)
    rng = np.random.default_rng(5)
    for _ in range(5_000):
        node, peer = (int(each) for each in rng.integers(-2, 18, 2))
        detector.observe(Observation(1.0, node, ProbeReturned(64, rng.uniform(0, 1e9), 5.0), peer=peer))
    assert 0 < len(detector) <= 40 * (2 + MAX_OPEN)


def test_one_word_by_a_clock_far_ahead_blinds_nobody() -> None:
    detector = LargeJobDetector(job_of(SMALL))
    detector.observe(Observation(1e12, 0, socket(0, 0), peer=1))
    detector.evaluate(1.0)
    for one in Stream(SMALL, seed=1).windows(3):
        detector.observe(one)
        detector.evaluate(one.at_s)
    assert len(detector) > 100
