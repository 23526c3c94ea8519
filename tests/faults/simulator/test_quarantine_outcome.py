"""The quarantines that the policy would carry out for the diagnoses of a simulated job."""

from collections.abc import Sequence

import pytest

from faults.diagnosis import Diagnosis, Direction, FaultClass, Scope
from faults.quarantine import QuarantineRules
from faults.simulator.cluster import Shape, build
from faults.simulator.fault_schedule import FaultEvent, FaultKind
from faults.simulator.quarantine_outcome import RULES, QuarantineOutcome
from faults.simulator.score import Scorer, Tally

FABRIC = build(Shape(ranks=1024), seed=1).fabric
TX = FaultEvent(FaultKind.SLOW_TX, 40, 100.0, 200.0, 1.5)  # NIC 40 is of node 5


def _slow(node: int | None = 5, **more: object) -> Diagnosis:
    given = {
        "fault": FaultClass.COMM_SLOW,
        "scope": Scope.NODE,
        "node": node,
        "direction": Direction.TX,
        "onset_s": 0.0,
        "detected_s": 0.0,
        "isolate": True,
        "confidence": 0.95,
        "reason": "for a test",
        "evidence": ("bandwidth",),
        **more,
    }
    return Diagnosis.model_validate(given)


def _leaf(switch: int) -> Diagnosis:
    return _slow(scope=Scope.LEAF, node=None, direction=None, isolate=False, switch=f"leaf-{switch}")


def _quarantines(
    timed: Sequence[tuple[float, Sequence[Diagnosis]]], *, until_s: float = 400.0
) -> list[tuple[float, int]]:
    policy, by_time = QuarantineOutcome(FABRIC), dict(timed)
    times = [5.0 * at for at in range(int(until_s / 5.0))]
    return [(now_s, node) for now_s in times for node in policy.step(now_s, by_time.get(now_s, ()))]


def _repeated(diagnosis: Diagnosis, from_s: float, to_s: float) -> list[tuple[float, Sequence[Diagnosis]]]:
    return [(5.0 * at, [diagnosis]) for at in range(int(from_s / 5.0), int(to_s / 5.0))]


def test_a_slow_diagnosis_must_last_for_the_confirmation_time() -> None:
    assert _quarantines(_repeated(_slow(), 100.0, 300.0)) == [(130.0, 5)]
    assert not _quarantines(_repeated(_slow(), 100.0, 125.0))  # the last is active until 125


def test_a_gap_restarts_the_confirmation() -> None:
    gap = _repeated(_slow(), 100.0, 120.0) + _repeated(_slow(), 130.0, 155.0)
    assert not _quarantines(gap)
    one_missing = _repeated(_slow(), 100.0, 120.0) + _repeated(_slow(), 120.0 + 5.0, 145.0)
    assert _quarantines(one_missing) == [(130.0, 5)]


def test_a_node_is_quarantined_once_per_diagnosis() -> None:
    assert _quarantines(_repeated(_slow(), 100.0, 1000.0), until_s=1000.0) == [(130.0, 5)]
    again = _repeated(_slow(), 100.0, 300.0) + _repeated(_slow(), 800.0, 900.0)
    assert _quarantines(again, until_s=1000.0) == [(130.0, 5), (830.0, 5)]


def test_a_hang_quarantines_at_once_and_an_uncertain_diagnosis_never() -> None:
    assert _quarantines([(100.0, [_slow(fault=FaultClass.COMM_HANG)])]) == [(100.0, 5)]
    assert not _quarantines(_repeated(_slow(confidence=0.8), 100.0, 300.0))
    assert not _quarantines(_repeated(_slow(isolate=False), 100.0, 300.0))


@pytest.mark.parametrize(
    ("leaf", "quarantined"), [(int(FABRIC.leaf[40]), False), (int(FABRIC.leaf[40]) + 1, False), (99, True)]
)
def test_no_node_is_quarantined_under_a_slow_leaf(leaf: int, *, quarantined: bool) -> None:
    timed = [(now_s, [*diagnoses, _leaf(leaf)]) for now_s, diagnoses in _repeated(_slow(), 100.0, 300.0)]
    assert bool(_quarantines(timed)) is quarantined


def test_the_shipped_rules_apply_and_no_budget_reduces_the_count() -> None:
    shipped = QuarantineRules()
    assert (RULES.confirm_s, RULES.min_confidence) == (shipped.confirm_s, shipped.min_confidence)
    many = [(5.0 * at, [_slow(node) for node in range(100)]) for at in range(20, 40)]
    assert len(_quarantines(many)) == 100


def _tally(events: Sequence[FaultEvent], timed: Sequence[tuple[float, Sequence[Diagnosis]]]) -> Tally:
    scorer, by_time = Scorer(FABRIC, events, until_s=1000.0), dict(timed)
    for at in range(200):
        scorer.observe(5.0 * at, by_time.get(5.0 * at, ()), congested=lambda _diagnosis, _now_s: False)
    return scorer.tally


def test_only_quarantines_of_healthy_nodes_are_counted() -> None:
    rightly = _tally([TX], _repeated(_slow(), 110.0, 200.0))
    assert (rightly.false_isolations, rightly.carried_out) == (0, 0)
    briefly = _tally([], _repeated(_slow(), 100.0, 120.0))
    assert (briefly.false_isolations, briefly.carried_out) == (1, 0)
    long = _tally([], _repeated(_slow(), 100.0, 200.0))
    assert (long.false_isolations, long.carried_out) == (1, 1)
    total = Tally()
    total.add(long)
    total.add(long)
    assert total.carried_out == 2
