"""Right, late and false diagnoses, and those that do not count."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest

from faults.diagnosis import Diagnosis, Direction, FaultClass, Scope
from faults.simulator.cluster import Shape, build
from faults.simulator.fault_schedule import FaultEvent, FaultKind, takes_machine
from faults.simulator.result import score
from faults.simulator.run import Observability
from faults.simulator.score import AFTER_S, Outcome, Scorer, Tally
from tests.faults.diagnoses import diagnosis

FABRIC = build(Shape(ranks=1024), seed=1).fabric
TX = FaultEvent(FaultKind.SLOW_TX, 40, 100.0, 200.0, 1.5)  # NIC 40 is of node 5


def _diagnosis(
    scope: Scope = Scope.NODE, node: int | None = 5, *, fault: FaultClass = FaultClass.COMM_SLOW, **more: object
) -> Diagnosis:
    return diagnosis(fault, node, scope=scope, **{"isolate": scope is Scope.NODE, **more})


def _tally(
    events: Sequence[FaultEvent],
    timed: Sequence[tuple[float, Diagnosis]],
    *,
    until_s: float = 1000.0,
    congested: bool = False,
) -> Tally:
    scorer = Scorer(FABRIC, events, until_s=until_s)
    for now_s, one in timed:
        scorer.observe(now_s, [one], congested=lambda _diagnosis, _now_s: congested)
    return scorer.tally


def test_a_repeated_diagnosis_counts_once() -> None:
    tally = _tally([TX], [(120.0 + at, _diagnosis(direction=Direction.TX)) for at in range(0, 60, 5)])
    assert (tally.eligible, tally.named, tally.ways) == (Counter({FaultKind.SLOW_TX: 1}),) * 3
    assert tally.ttd_s[FaultKind.SLOW_TX] == [20.0]
    assert (tally.right, tally.wrong, tally.false_isolations) == (1, 0, 0)


def test_detection_time_uses_the_clock_of_the_score() -> None:
    assert _tally([TX], [(140.0, _diagnosis(detected_s=101.0))]).late[FaultKind.SLOW_TX] == 1


def test_a_diagnosis_before_the_fault_does_not_count() -> None:
    tally = _tally([TX], [(90.0, _diagnosis())])
    assert not tally.named
    assert (tally.wrong, tally.false_isolations) == (1, 1)


@pytest.mark.parametrize(
    ("kind", "at", "to", "right", "other"),
    [
        (FaultKind.SLOW_LINK, 40, 48, _diagnosis(Scope.LINK, 5, peer=6), _diagnosis(Scope.LINK, 5, peer=7)),
        (FaultKind.SLOW_LINK, 40, 48, _diagnosis(Scope.LINK, 6, peer=5), _diagnosis(Scope.NODE, 5)),
        (
            FaultKind.LEAF,
            3,
            -1,
            _diagnosis(Scope.LEAF, None, switch="leaf-3"),
            _diagnosis(Scope.LEAF, None, switch="leaf-4"),
        ),
        (FaultKind.UPLINK, 9, -1, _diagnosis(Scope.UPLINK, None, switch="uplink-9"), _diagnosis(Scope.NODE, 9)),
        (FaultKind.SLOW_RX, 47, -1, _diagnosis(), _diagnosis(Scope.NODE, 6)),
        (FaultKind.STRAGGLER, 5, -1, _diagnosis(fault=FaultClass.NONCOMM_SLOW), _diagnosis()),
        (FaultKind.CRASH, 5, -1, _diagnosis(fault=FaultClass.CRASH), _diagnosis(fault=FaultClass.NONCOMM_HANG)),
        (FaultKind.HANG_LINK, 40, 48, _diagnosis(Scope.LINK, 5, peer=6, fault=FaultClass.COMM_HANG), _diagnosis()),
    ],
)
def test_class_and_entity_must_both_be_right(
    kind: FaultKind, at: int, to: int, right: Diagnosis, other: Diagnosis
) -> None:
    event = FaultEvent(kind, at, 100.0, 900.0, 1.5, to)
    assert _tally([event], [(120.0, right)]).named[kind] == 1
    tally = _tally([event], [(120.0, other)])
    assert not tally.named
    assert tally.wrong == 1


@pytest.mark.parametrize(
    ("kind", "at"), [(FaultKind.LEAF, 3), (FaultKind.SLOW_LINK, 40), (FaultKind.HICCUP, 5), (FaultKind.FOREIGN, 40)]
)
def test_isolating_a_node_for_a_switch_a_link_or_a_benign_event_is_false(kind: FaultKind, at: int) -> None:
    tally = _tally([FaultEvent(kind, at, 100.0, 200.0, 2.0, 48)], [(120.0, _diagnosis())])
    assert tally.false_isolations == 1


def test_a_cable_fault_has_a_longer_deadline_and_may_be_reported_as_its_only_link() -> None:
    pairs = {cable: set[frozenset[int]]() for cable in FABRIC.up[FABRIC.up >= 0].tolist()}
    for cable, a, b in zip(FABRIC.up, FABRIC.node[FABRIC.source], FABRIC.node[FABRIC.target], strict=True):
        if cable >= 0:
            pairs[int(cable)].add(frozenset((int(a), int(b))))
    alone = next(cable for cable, ends in pairs.items() if len(ends) == 1)
    shared = next(cable for cable, ends in pairs.items() if len(ends) > 1)
    for cable, named in ((alone, 1), (shared, 0)):
        a, b = sorted(next(iter(pairs[cable])))
        bad = FaultEvent(FaultKind.UPLINK, cable, 0.0, 900.0, 2.0)
        tally = _tally([bad], [(700.0, _diagnosis(Scope.LINK, a, peer=b))])
        assert (tally.eligible[FaultKind.UPLINK], tally.named[FaultKind.UPLINK]) == (1, named)
    assert not _tally(
        [FaultEvent(FaultKind.UPLINK, alone, 0.0, 600.0, 2.0)], []
    ).eligible  # no longer than congestion lasts


def test_an_earlier_diagnosis_does_not_detect_the_fault() -> None:
    before = [(at, _diagnosis()) for at in (90.0, 95.0, 100.0, 105.0, 110.0)]
    assert not _tally([TX], before).named
    assert _tally([TX], [*before, (125.0, _diagnosis())]).named[FaultKind.SLOW_TX] == 1  # reported again


def test_a_mild_fault_may_be_missed_or_found() -> None:
    mild = FaultEvent(FaultKind.SLOW_NIC, 40, 100.0, 200.0, 1.15)
    tally = _tally([mild], [(120.0, _diagnosis())])
    assert (sum(tally.eligible.values()), tally.right, tally.false_isolations) == (0, 1, 0)


def test_a_short_or_truncated_fault_does_not_count() -> None:
    brief = FaultEvent(FaultKind.SLOW_NIC, 40, 100.0, 125.0, 2.0)
    assert not _tally([brief], []).eligible
    assert not _tally([TX], [], until_s=120.0).eligible


def test_a_diagnosis_may_outlive_its_fault_briefly() -> None:
    assert _tally([TX], [(200.0 + AFTER_S - 1.0, _diagnosis())]).false_isolations == 0
    assert _tally([TX], [(200.0 + AFTER_S + 1.0, _diagnosis())]).false_isolations == 1


def test_congestion_and_workload_diagnoses_are_counted_separately() -> None:
    link, load = _diagnosis(Scope.LINK, 5, peer=6), _diagnosis(Scope.WORKLOAD, isolate=False)
    tally = _tally([], [(50.0, link), (60.0, load)], congested=True)
    assert (tally.congestion, tally.workload, tally.right, tally.wrong) == (1, 1, 0, 0)
    assert _tally([], [(50.0, link)], congested=False).wrong == 1


def test_a_node_that_is_diagnosed_again_later_counts_again() -> None:
    timed = [(at, _diagnosis()) for at in (10.0, 15.0, 60.0, 300.0)]
    assert _tally([], timed).false_isolations == 2


def test_the_score_has_intervals_and_a_weekly_rate() -> None:
    outcome = Outcome(hours=16.8, tally=_tally([TX], [(120.0, _diagnosis())]), spent_s=[0.1, 0.3])
    outcome.add(Outcome(hours=0.0, tally=_tally([TX], [(150.0, _diagnosis(Scope.NODE, 9))]), spent_s=[]))
    found = score(outcome, scenario="mixed", ranks=1024, seed=1, window_s=5.0, run_s=1.0)
    assert (found.faults, found.recall, found.precision) == (2, 0.5, 0.5)
    assert found.recall_interval == pytest.approx((0.0945, 0.9055), abs=1e-3)
    assert found.false_isolations == 1
    assert found.false_isolations_per_week == pytest.approx(10.0)
    assert found.false_isolations_per_week_upper95 == pytest.approx(47.4, abs=0.1)
    assert found.ttd_s["comm-slow"].p95 == 20.0
    assert found.compute_s_per_window == pytest.approx(0.2)
    assert found.compute_s_per_window_max == 0.3
    assert found.by_kind["slow-tx"].right_direction == 0.0
    assert found.by_kind["slow-tx"].right_direction_interval == pytest.approx((0.0, 0.7935), abs=1e-3)


def test_of_twenty_times_the_nineteenth_is_the_95th_percentile() -> None:
    tally = Tally()
    tally.ttd_s[FaultKind.SLOW_TX] = [float(time_s) for time_s in range(20, 0, -1)]
    times = score(Outcome(1.0, tally), scenario="x", ranks=1024, seed=1, window_s=5.0, run_s=1.0).ttd_s["comm-slow"]
    assert (times.p50, times.p95, times.max) == (10.0, 19.0, 20.0)


def test_hidden_faults_are_counted_and_stay_in_the_recall() -> None:
    silent = np.ones(FABRIC.node.max() + 1, dtype=bool)
    silent[[5, 9]] = False
    faults = [
        FaultEvent(FaultKind.HANG_CODE, 5, 100.0, 200.0),
        FaultEvent(FaultKind.HANG_CODE, 6, 300.0, 400.0),
        FaultEvent(FaultKind.HANG_NODE, 9, 500.0, 600.0),  # its peers observe it
    ]
    scorer = Scorer(FABRIC, faults, until_s=1000.0)
    witnesses = Observability(scorer.eligible, ~silent, in_time_s=30.0)
    for at in range(200):
        witnesses.observe(5.0 * at, 5.0 * at + 5.0, silent)
    named = _diagnosis(node=6, fault=FaultClass.NONCOMM_HANG)
    scorer.observe(310.0, [named], congested=lambda _diagnosis, _now_s: False)
    scorer.hide(witnesses.hidden)
    found = score(Outcome(1.0, scorer.tally), scenario="hangs", ranks=1024, seed=1, window_s=5.0, run_s=1.0)
    assert (found.faults, found.hidden_faults) == (3, 1)
    assert found.recall == pytest.approx(1 / 3)
    assert found.recall_visible == pytest.approx(1 / 2)
    assert found.by_kind["hang-code"].hidden == 1


@pytest.mark.parametrize(("margin_s", "hidden"), [(10.0, True), (20.0, False)])
def test_an_agent_that_returns_in_time_hides_nothing(margin_s: float, *, hidden: bool) -> None:
    late = FaultEvent(FaultKind.STRAGGLER, 5, 100.0, 200.0, 1.5)
    witnesses = Observability([late], np.zeros(128, dtype=bool), in_time_s=30.0)
    for at in range(40):
        reported = np.ones(128, dtype=bool)
        reported[5] = 5.0 * at >= 130.0 - margin_s
        witnesses.observe(5.0 * at, 5.0 * at + 5.0, reported)
    assert witnesses.hidden(late) is hidden


def test_a_straggler_with_reporting_ranks_is_not_hidden_with_its_agent() -> None:
    late, hung = (FaultEvent(kind, 5, 100.0, 200.0, 1.5) for kind in (FaultKind.STRAGGLER, FaultKind.HANG_CODE))
    witnesses = Observability([late, hung], np.zeros(128, dtype=bool), in_time_s=30.0)
    reporting_ranks = np.ones(128, dtype=bool)
    reported = reporting_ranks.copy()
    reported[5] = False
    for at in range(40):
        witnesses.observe(5.0 * at, 5.0 * at + 5.0, reported, with_records=reporting_ranks)
    assert [witnesses.hidden(one) for one in (late, hung)] == [False, True]


def test_a_machine_lost_with_its_agent_is_hidden_only_without_another_source() -> None:
    dead = [FaultEvent(FaultKind.CRASH, node, 100.001, 200.0) for node in (5, 6)]
    assert all(map(takes_machine, dead))
    unanswered = np.zeros(128, dtype=bool)
    unanswered[5] = True
    witnesses = Observability(dead, unanswered, in_time_s=30.0)
    assert [witnesses.hidden(one) for one in dead] == [True, False]


def test_an_absent_kind_has_no_score() -> None:
    found = score(Outcome(hours=1.0), scenario="healthy", ranks=1024, seed=1, window_s=5.0, run_s=1.0)
    assert (found.recall, found.recall_interval, found.precision, found.ttd_s) == (None, None, None, {})
