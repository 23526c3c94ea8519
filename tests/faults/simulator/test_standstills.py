"""The ranks that a stall blocks in the model, and the detection of the rank that caused it."""

import numpy as np
import pytest
from numpy.typing import NDArray

from faults.diagnosis import Diagnosis, Direction, FaultClass, Scope
from faults.simulator.cluster import Shape, build
from faults.simulator.fault_schedule import FaultEvent, FaultKind
from faults.simulator.program import DATA, PIPELINE, TENSOR, timetable, writing_nodes
from faults.simulator.stall_detector import StallDetector
from faults.simulator.stall_plane import BEAT_S, StallPlane

CLUSTER = build(Shape(ranks=512), seed=2)  # 64 nodes: 8 stages of 8 replicas
DETECTOR = StallDetector.of(CLUSTER)
NODE, RANK = 19, 19 * 8


def _diagnoses(
    *events: FaultEvent, lost: int = -1, until_s: float = 40.0, skew_s: NDArray[np.float64] | None = None
) -> list[tuple[float, Diagnosis]]:
    plane = StallPlane(CLUSTER, np.zeros(CLUSTER.shape.nodes) if skew_s is None else skew_s, seed=1)
    reported = np.ones(CLUSTER.shape.nodes, dtype=bool)
    if lost >= 0:
        reported[lost] = False
    state, found = DETECTOR.start(), list[tuple[float, Diagnosis]]()
    for from_s in np.arange(0.0, until_s, 5.0):
        lasting = [one for one in events if one.from_s < from_s + 5.0 and one.to_s > from_s]
        for snapshot in plane.between(float(from_s), float(from_s) + 5.0, reported=reported, events=lasting):
            state, diagnoses = DETECTOR.step(state, snapshot)
            found += [(snapshot.at_s, diagnosis) for diagnosis in diagnoses]
    return found


def test_a_missing_rank_stalls_its_groups_first_and_then_all_ranks() -> None:
    hung = FaultEvent(FaultKind.HANG_CODE, NODE, 10.0, 60.0)
    plan = timetable(CLUSTER, [hung], from_s=5.0, to_s=60.0, seed=1)
    hung_rank = RANK + 10_000 % 8
    step = int(np.isfinite(plan.entered_s[TENSOR, :, hung_rank]).sum())
    assert np.isfinite(plan.entered_s[TENSOR, step]).sum() == 511  # all others still reached that step
    stuck = np.flatnonzero(np.isinf(plan.finished_s[TENSOR, step]))
    assert stuck.tolist() == list(range(RANK, RANK + 8))
    assert np.isinf(plan.finished_s[DATA, step]).all()  # through the pipeline, and the data groups of its stages
    assert np.isinf(plan.entered_s[TENSOR, step + 1 :]).all()


def test_a_cut_link_stalls_one_group_that_all_members_entered() -> None:
    fabric = CLUSTER.fabric
    edge = 0  # of a ring
    cut = FaultEvent(FaultKind.HANG_LINK, int(fabric.source[edge]), 10.0, 60.0, to=int(fabric.target[edge]))
    plan = timetable(CLUSTER, [cut], from_s=5.0, to_s=60.0, seed=1)
    step = int(np.isfinite(plan.finished_s[DATA, :, 0]).sum())
    members = np.arange(8) * 8  # stage 0, rail 0
    assert np.isfinite(plan.entered_s[DATA, step, members]).all()
    assert np.isinf(plan.finished_s[DATA, step, members]).all()
    assert np.isfinite(plan.finished_s[PIPELINE, step]).all()


def test_collectives_end_when_the_last_rank_has_entered() -> None:
    plan = timetable(CLUSTER, [], from_s=0.0, to_s=10.0, seed=1)
    came = plan.entered_s[DATA, 3].reshape(8, 8, 8)
    assert plan.finished_s[DATA, 3].reshape(8, 8, 8)[2, :, 5] == pytest.approx(came[2, :, 5].max() + 0.05)


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        (FaultKind.HANG_CODE, FaultClass.NONCOMM_HANG),
        (FaultKind.HANG_NODE, FaultClass.COMM_HANG),
        (FaultKind.CRASH, FaultClass.CRASH),
    ],
)
def test_only_the_culprit_is_diagnosed_within_seconds(kind: FaultKind, fault: FaultClass) -> None:
    found = _diagnoses(FaultEvent(kind, NODE, 10.0, 60.0))
    assert {(diagnosis.fault, diagnosis.scope, diagnosis.node) for _, diagnosis in found} == {(fault, Scope.NODE, NODE)}
    assert found[0][0] - 10.0 <= (1.0 if kind is FaultKind.CRASH else 3.25)


def test_a_machine_lost_with_its_agent_is_diagnosed_from_the_independent_source() -> None:
    found = _diagnoses(FaultEvent(FaultKind.CRASH, NODE, 10.001, 60.0))
    assert {(diagnosis.fault, diagnosis.node) for _, diagnosis in found} == {(FaultClass.CRASH, NODE)}
    assert 1.0 <= found[0][0] - 10.0 <= 2.5


@pytest.mark.parametrize("kind", [FaultKind.HANG_CODE, FaultKind.HANG_NODE])
def test_wrong_clocks_change_neither_the_diagnosis_nor_its_time(kind: FaultKind) -> None:
    fault = FaultEvent(kind, NODE, 10.0, 60.0)
    right = _diagnoses(fault)
    wrong = _diagnoses(fault, skew_s=np.random.default_rng(3).uniform(-0.05, 0.05, CLUSTER.shape.nodes))
    assert {diagnosis.node for _, diagnosis in wrong} == {NODE}
    assert abs(wrong[0][0] - right[0][0]) <= BEAT_S
    far = np.zeros(CLUSTER.shape.nodes)
    far[NODE] = -30.0
    assert _diagnoses(fault, skew_s=far)[0][1].onset_s < -10.0  # by its own clock


def test_timestamps_use_local_clocks_and_arrivals_the_correct_one() -> None:
    skew_s = np.linspace(-0.05, 0.05, CLUSTER.shape.nodes)
    plane = StallPlane(CLUSTER, skew_s, seed=1)
    reported = np.ones(CLUSTER.shape.nodes, dtype=bool)
    cut = FaultEvent(FaultKind.HANG_NODE, NODE, 11.0, 60.0)
    for snapshot in plane.between(10.0, 15.0, reported=reported, events=[cut]):
        reported_s = snapshot.stamp_s - skew_s
        assert (reported_s <= snapshot.at_s + 1e-9).all()
        assert (reported_s > snapshot.at_s - BEAT_S - 1e-9).all()
        assert np.ptp(reported_s) > 0.5 * BEAT_S


def test_unchanged_states_are_evaluated_rarely() -> None:
    plane = StallPlane(CLUSTER, np.zeros(CLUSTER.shape.nodes), seed=1)
    reported = np.ones(CLUSTER.shape.nodes, dtype=bool)

    def evaluations(one: FaultEvent, from_s: float) -> int:
        return len(list(plane.between(from_s, from_s + 5.0, reported=reported, events=[one])))

    hung, silent = FaultEvent(FaultKind.HANG_CODE, NODE, 10.0, 300.0), FaultEvent(FaultKind.SILENCE, 0, 10.0, 70.0)
    assert (evaluations(hung, 10.0), evaluations(hung, 60.0)) == (20, 1)
    assert (evaluations(silent, 10.0), evaluations(silent, 20.0)) == (20, 0)


def test_a_cut_link_is_diagnosed_with_its_direction_and_isolates_no_node() -> None:
    fabric = CLUSTER.fabric
    for edge in (0, int(np.flatnonzero(fabric.traffic == 1)[3]), int(np.flatnonzero(fabric.traffic == 2)[5])):
        a, b = int(fabric.source[edge]), int(fabric.target[edge])
        found = _diagnoses(FaultEvent(FaultKind.HANG_LINK, a, 10.0, 60.0, to=b))
        assert {(v.scope, v.node, v.peer, v.direction, v.isolate) for _, v in found} == {
            (Scope.LINK, int(fabric.node[a]), int(fabric.node[b]), Direction.FORWARD, False)
        }


def test_a_lost_agent_is_not_diagnosed_in_a_healthy_job_or_beside_a_hang() -> None:
    silent = [FaultEvent(FaultKind.SILENCE, 0, 5.0, 35.0)]
    assert not _diagnoses(*silent, lost=NODE)
    found = _diagnoses(FaultEvent(FaultKind.HANG_CODE, 40, 10.0, 60.0), lost=NODE)
    assert {diagnosis.node for _, diagnosis in found} == {40}


def test_a_silent_rank_that_hangs_is_not_isolated_for_its_silence() -> None:
    assert not [diagnosis for _, diagnosis in _diagnoses(FaultEvent(FaultKind.HANG_CODE, NODE, 10.0, 60.0), lost=NODE)]


def test_ranks_that_save_a_checkpoint_are_not_diagnosed() -> None:
    plan = timetable(CLUSTER, [FaultEvent(FaultKind.PAUSE, 0, 10.0, 22.0)], from_s=5.0, to_s=40.0, seed=1)
    gaps = np.diff(plan.entered_s[TENSOR, :, int(writing_nodes(CLUSTER)[0]) * 8])
    assert np.nanmax(gaps[np.isfinite(gaps)]) > 10.0
    assert not _diagnoses(FaultEvent(FaultKind.PAUSE, 0, 10.0, 22.0))
