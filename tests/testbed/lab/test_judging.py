"""Tests that only the right class at the right place is correct, and that every other diagnosis counts as false."""

import pytest

from faults.diagnosis import Diagnosis, Direction, FaultClass, Scope
from tests.testbed.lab.experiment import Experiment
from tests.testbed.lab.injections import Injection
from tests.testbed.lab.judging import expected_of, judge
from tests.testbed.lab.watching import Stamped
from tests.testbed.lab.workload import Inner, Workload

SLOW_TX = Injection(kind="tx", at_s=6.0, node=3, rate_mbit=100.0)
CUT = Injection(kind="pair_cut", at_s=6.0, node=3, peer=2)


def diagnosed(
    fault: FaultClass,
    node: int | None,
    *,
    peer: int | None = None,
    scope: Scope = Scope.NODE,
    direction: Direction | None = None,
    isolate: bool = True,
    at_s: float = 8.0,
) -> Stamped:
    diagnosis = Diagnosis(
        fault=fault,
        scope=scope,
        node=node,
        peer=peer,
        direction=direction,
        onset_s=at_s,
        detected_s=at_s,
        isolate=isolate,
        confidence=0.9,
        reason="by a test",
    )
    return Stamped(diagnosis, at_s)


def experiment(*injections: Injection, inner: tuple[Inner, ...] = ()) -> Experiment:
    return Experiment(name="x", workload=Workload(ranks=4, duration_s=10.0, inner=inner), injections=injections)


def test_the_detection_time_counts_from_the_start_of_the_fault() -> None:
    outcome = judge(
        expected_of(experiment(SLOW_TX)), [diagnosed(FaultClass.COMM_SLOW, 3, direction=Direction.TX)], began_s=6.5
    )
    assert (outcome.class_right, outcome.place_right, outcome.direction_right) == (True, True, True)
    assert outcome.detect_s == pytest.approx(1.5)
    assert (outcome.wrong_isolations, outcome.wrong_diagnoses) == (0, 0)


def test_wrong_direction_wrong_class_and_wrong_node_are_distinguished() -> None:
    expected = expected_of(experiment(SLOW_TX))
    backwards = judge(expected, [diagnosed(FaultClass.COMM_SLOW, 3, direction=Direction.RX)])
    assert (backwards.class_right, backwards.place_right, backwards.direction_right) == (True, True, False)
    other_class = judge(expected, [diagnosed(FaultClass.NONCOMM_SLOW, 3)])
    assert (other_class.class_right, other_class.place_right, other_class.detect_s) == (False, True, None)
    assert (other_class.wrong_isolations, other_class.wrong_diagnoses) == (0, 1)
    other_node = judge(expected, [diagnosed(FaultClass.COMM_SLOW, 1)])
    assert (other_node.class_right, other_node.place_right) == (True, False)
    assert (other_node.wrong_isolations, other_node.wrong_diagnoses) == (1, 1)


def test_a_cut_link_may_be_named_from_either_end_but_isolates_no_node() -> None:
    expected = expected_of(experiment(CUT))
    link = {"scope": Scope.LINK, "isolate": False}
    assert judge(expected, [diagnosed(FaultClass.COMM_HANG, 2, peer=3, **link)]).place_right  # type: ignore[arg-type]
    blamed = judge(expected, [diagnosed(FaultClass.COMM_HANG, 3)])
    assert not blamed.place_right
    assert blamed.wrong_isolations == 1


def test_an_additional_wrong_diagnosis_is_counted() -> None:
    diagnoses = [
        diagnosed(FaultClass.COMM_SLOW, 3, direction=Direction.TX),
        diagnosed(FaultClass.COMM_SLOW, 2, at_s=9.0),
    ]
    outcome = judge(expected_of(experiment(SLOW_TX)), diagnoses)
    assert outcome.place_right
    assert (outcome.wrong_isolations, outcome.wrong_diagnoses) == (1, 1)


@pytest.mark.parametrize("what", ["imbalance", "pause"])
def test_without_a_fault_only_the_workload_may_be_named(what: str) -> None:
    inner = Inner(what=what, at_s=1.0, ms=20.0)  # type: ignore[arg-type]
    flooded = experiment(Injection(kind="flood", at_s=2.0, node=0, peer=1), inner=(inner,))
    assert expected_of(flooded) is None
    remark = diagnosed(FaultClass.COMM_SLOW, 0, scope=Scope.WORKLOAD, isolate=False)
    assert judge(None, [remark]).class_right
    accused = judge(None, [remark, diagnosed(FaultClass.COMM_SLOW, 1)])
    assert (accused.class_right, accused.wrong_isolations, accused.wrong_diagnoses) == (False, 1, 1)


def test_a_fault_inside_a_rank_is_expected_of_its_node() -> None:
    slow = expected_of(experiment(inner=(Inner(what="delay", at_s=5.0, rank=2, ms=40.0),)))
    hung = expected_of(experiment(inner=(Inner(what="hang", at_s=5.0, rank=1),)))
    assert slow is not None
    assert (slow.fault, slow.node) == (FaultClass.NONCOMM_SLOW, 2)
    assert hung is not None
    assert (hung.fault, hung.node) == (FaultClass.NONCOMM_HANG, 1)
