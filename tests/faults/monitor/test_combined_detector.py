"""Small jobs with known leaves: as fast as without them, and no node is isolated for a fault of its switch."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from faults.diagnosis import Diagnosis, Direction, FaultClass, Scope
from faults.monitor import FaultMonitor
from faults.monitor.combined_detector import combine
from faults.monitor.dedup import FaultDedup
from faults.simulator.fault_schedule import FaultEvent, FaultKind
from tests.faults.diagnoses import diagnosis
from tests.faults.large_jobs.streams import WINDOW_S, Stream, cluster, job_of

SMALL = cluster()
HEALTHY = 13  # windows
FROM_S = HEALTHY * WINDOW_S


def slow(scope: Scope = Scope.NODE, node: int | None = 3, **more: object) -> Diagnosis:
    return diagnosis(
        FaultClass.COMM_SLOW, node, scope=scope, **{"onset_s": 100.0, "isolate": scope is Scope.NODE, **more}
    )


LINK = slow(Scope.LINK, node=3, peer=4, direction=Direction.FORWARD)
LEAF = slow(Scope.LEAF, None, switch="rack 1")
MAY_STAY = slow(isolate=False)
LATE = diagnosis(FaultClass.NONCOMM_SLOW, 7, isolate=True)


@pytest.mark.parametrize(
    ("quick", "fit", "said"),
    [
        ([slow()], [], [MAY_STAY]),  # reported at once, isolated when the fit agrees
        ([slow()], [slow(detected_s=120.0)], [slow()]),
        ([MAY_STAY], [slow()], [MAY_STAY]),
        ([], [slow()], [slow()]),  # too mild for the quick detector
        ([slow()], [LEAF], [LEAF]),
        ([slow(), slow(node=9)], [LEAF, slow(node=9)], [slow(node=9), LEAF]),
        ([LINK], [slow()], [LINK]),  # one diagnosis per fault
        ([LINK], [slow(node=9)], [LINK, slow(node=9)]),
        ([LATE], [LEAF], [LATE, LEAF]),  # a longer compute time is not the switch's fault
        ([LATE], [LATE], [LATE]),
    ],
)
def test_diagnoses_of_both_detectors_are_merged_per_fault(
    quick: Sequence[Diagnosis], fit: Sequence[Diagnosis], said: Sequence[Diagnosis]
) -> None:
    assert list(combine(quick, fit)) == said


def test_links_that_became_slow_with_a_switch_are_replaced_by_it() -> None:
    seen, others = FaultDedup(10.0), slow(node=9, isolate=False, onset_s=60.0)
    seen.update([MAY_STAY, LINK.model_copy(update={"node": 5}), slow(node=6), others], now_s=118.0)
    seen.update([LEAF], now_s=120.0)
    assert [(each.scope, each.node) for each in seen.diagnoses()] == [
        (Scope.NODE, 6),  # the fit was certain of it
        (Scope.NODE, 9),  # slow since long before
        (Scope.LEAF, None),
    ]


def test_links_are_replaced_when_the_fit_misses_the_switch_for_a_window() -> None:
    seen = FaultDedup(10.0)
    for now_s, said in ((120.0, [LEAF]), (125.0, [MAY_STAY, LINK]), (130.0, [LEAF])):
        seen.update(said, now_s=now_s)
    assert [each.scope for each in seen.diagnoses()] == [Scope.LEAF]


def test_a_link_that_became_slow_long_after_a_switch_is_a_separate_fault() -> None:
    seen = FaultDedup(10.0)
    for now_s, said in ((120.0, [LEAF]), (164.0, [LEAF, LINK.model_copy(update={"onset_s": 160.0})]), (170.0, [LEAF])):
        seen.update(said, now_s=now_s)
    assert [each.scope for each in seen.diagnoses()] == [Scope.LEAF, Scope.LEAF, Scope.LINK]


class Heard:
    """Two monitors of one stream, with leaves and without."""

    def __init__(self, *faults: FaultEvent, longer: float = 1.4) -> None:
        job = job_of(SMALL)
        self.with_leaves, self.without = FaultMonitor(job), FaultMonitor(replace(job, fabric=None))
        self.isolated_s: dict[int | None, float] = {}
        stream, now_s = Stream(SMALL, seed=2, looks=20), 0.0
        for one in (*stream.windows(HEALTHY), *stream.windows(5, faults, longer=longer)):
            while one.at_s > now_s + 0.25:
                now_s += 0.25
                for each in self.with_leaves.evaluate(now_s):
                    if each.isolate:
                        self.isolated_s.setdefault(each.node, now_s)
                self.without.evaluate(now_s)
            self.with_leaves.observe(one)
            self.without.observe(one)


def hardware(watcher: FaultMonitor) -> list[Diagnosis]:
    return [each for each in watcher.diagnoses() if each.scope is not Scope.WORKLOAD]


def test_a_slow_nic_is_diagnosed_as_early_and_isolated_when_the_fit_agrees() -> None:
    heard = Heard(FaultEvent(FaultKind.SLOW_NIC, 3, FROM_S, 1e9, 2.0))
    (found,), (other,) = hardware(heard.with_leaves), hardware(heard.without)
    assert found.node == other.node == 3
    assert found.detected_s == other.detected_s <= FROM_S + 10.0
    assert list(heard.isolated_s) == [3]
    assert heard.isolated_s[3] > FROM_S + 15.0


def test_no_node_is_isolated_for_its_leaf() -> None:
    heard = Heard(FaultEvent(FaultKind.LEAF, 0, FROM_S, 1e9, 2.5))
    assert [each.switch for each in hardware(heard.with_leaves)] == ["rack 0"]
    nodes = hardware(heard.without)
    assert len(nodes) > 1  # a single one of them would be isolated
    assert not heard.isolated_s
    assert not any(each.isolate for each in nodes)


def test_two_slow_nics_of_two_known_leaves_are_isolated() -> None:
    faults = [FaultEvent(FaultKind.SLOW_NIC, nic, FROM_S, 1e9, 2.0) for nic in (3, 20)]
    heard = Heard(*faults, longer=1.9)
    assert set(heard.isolated_s) == {3, 20}
    assert not any(each.isolate for each in hardware(heard.without))  # a switch can be the cause
