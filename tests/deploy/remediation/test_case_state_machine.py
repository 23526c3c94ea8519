"""The next step of a case, observation by observation."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

pytest.importorskip("ray.train", reason="ray.train is not installed", exc_type=ImportError)

from api.schemas.remediation import MAX_RAY_NODES, CaseSpec, RemediationStage, RunCase
from deploy.remediation.actuator import Probe, RunHook
from deploy.remediation.case_state_machine import Drain, EndWorkers, advance
from deploy.remediation.cluster_interface import ClusterSnapshot, RayNode
from faults.quarantine import NodeState
from fleetwright.ray_train.run_status import RunPhase, RunView
from tests.deploy.remediation.cluster import node, probe_only, run_on

NOW = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)
BAD = "b"
DRAINED = node(BAD, draining=True)


def case(**more: Any) -> CaseSpec:
    begun = {
        "node": BAD,
        "state": NodeState.QUARANTINED,
        "stage": RemediationStage.REQUESTED,
        "since": NOW,
        "opened_at": NOW,
        "deadline": NOW,
    }
    return CaseSpec.model_validate(begun | {"ray_nodes": (f"id-{BAD}",)} | more)


def observed(*nodes: RayNode, runs: tuple[RunView, ...] = (), silent: frozenset[str] = frozenset()) -> ClusterSnapshot:
    return ClusterSnapshot(nodes=(node("a"), *nodes), runs=runs, silent=silent)


def test_a_node_that_takes_work_is_drained_before_anything_else() -> None:
    step = advance(
        case(), desired=NodeState.QUARANTINED, snapshot=observed(node(BAD), runs=(run_on("a", BAD),)), now=NOW
    )
    assert (step.case.stage, step.actions) == (RemediationStage.DRAINING, (Drain(("id-b",)),))
    assert [(each.run, each.attempt, each.workers, each.checkpoint_step) for each in step.case.runs] == [
        ("llm", 1, 1, 9)
    ]


def test_a_node_with_many_former_ids_stays_within_the_limit_of_a_case() -> None:
    often = case(ray_nodes=tuple(f"a-{number:03}" for number in range(MAX_RAY_NODES)))
    step = advance(often, desired=NodeState.QUARANTINED, snapshot=observed(node(BAD, ray_id="z-new")), now=NOW)
    assert step.actions == (Drain(("z-new",)),)
    assert "z-new" in CaseSpec.model_validate(step.case.model_dump()).ray_nodes
    assert len(step.case.ray_nodes) == MAX_RAY_NODES


def test_workers_of_a_hang_are_ended_immediately_on_that_node_only() -> None:
    others = run_on("a", name="other")
    step = advance(
        case(), desired=NodeState.QUARANTINED, snapshot=observed(DRAINED, runs=(run_on("a", BAD), others)), now=NOW
    )
    assert step.case.stage is RemediationStage.MIGRATING
    assert step.actions == (EndWorkers((("llm", 1),), frozenset({"id-b"})),)


def test_ranks_that_still_step_have_time_for_one_checkpoint() -> None:
    slow = case(can_checkpoint=True, deadline=NOW + timedelta(seconds=60))
    before = advance(slow, desired=NodeState.QUARANTINED, snapshot=observed(DRAINED, runs=(run_on("a", BAD),)), now=NOW)
    assert (before.case.stage, before.actions) == (RemediationStage.EVACUATING, ())
    checkpointed = advance(
        before.case,
        desired=NodeState.QUARANTINED,
        snapshot=observed(DRAINED, runs=(run_on("a", BAD, checkpoint_step=19),)),
        now=NOW,
    )
    late = advance(
        before.case,
        desired=NodeState.QUARANTINED,
        snapshot=observed(DRAINED, runs=(run_on("a", BAD),)),
        now=NOW + timedelta(seconds=60),
    )
    assert [checkpointed.case.stage, late.case.stage] == [RemediationStage.MIGRATING] * 2


def test_workers_of_a_worker_group_that_ray_shuts_down_are_ended() -> None:
    ending = run_on("a", BAD, phase=RunPhase.ENDING)
    slow = case(can_checkpoint=True, deadline=NOW + timedelta(seconds=60))
    assert (
        advance(slow, desired=NodeState.QUARANTINED, snapshot=observed(DRAINED, runs=(ending,)), now=NOW).case.stage
        is RemediationStage.MIGRATING
    )


@pytest.mark.parametrize(
    ("view", "stage", "resumed"),
    [
        (run_on(phase=RunPhase.STARTING), RemediationStage.RESTARTING, None),
        (run_on("a", "c", attempt=2), RemediationStage.RESTARTING, None),
        (run_on("a", "c", attempt=2, attempt_step=19), RemediationStage.REPLACED, 19),
    ],
)
def test_a_run_is_settled_after_its_first_step_on_other_nodes(
    view: RunView, stage: RemediationStage, resumed: int | None
) -> None:
    begun = case(runs=(RunCase(run="llm", attempt=1, workers=1, checkpoint_step=9),))
    step = advance(begun, desired=NodeState.QUARANTINED, snapshot=observed(DRAINED, runs=(view,)), now=NOW)
    assert (step.case.stage, step.case.runs[0].resumed_step) == (stage, resumed)


def test_the_case_waits_for_a_silent_run_but_not_for_one_that_is_over() -> None:
    begun = case(runs=(RunCase(run="llm", attempt=1, workers=1),))
    over = advance(begun, desired=NodeState.QUARANTINED, snapshot=observed(), now=NOW)
    silent = advance(begun, desired=NodeState.QUARANTINED, snapshot=observed(silent=frozenset({"llm"})), now=NOW)
    assert (over.case.stage, over.case.runs[0].over) == (RemediationStage.REPLACED, True)
    assert (silent.case.stage, silent.case.runs[0].over) == (RemediationStage.RESTARTING, False)


def test_a_run_that_returns_to_the_node_is_ended_there_again() -> None:
    begun = case(runs=(RunCase(run="llm", attempt=1, workers=1),))
    again = run_on("a", BAD, attempt=2)
    step = advance(begun, desired=NodeState.QUARANTINED, snapshot=observed(DRAINED, runs=(again,)), now=NOW)
    assert step.actions == (EndWorkers((("llm", 2),), frozenset({"id-b"})),)


def test_a_node_that_returns_with_resources_while_out_of_service_is_drained_again() -> None:
    back = node(BAD, ray_id="again-b")
    step = advance(case(), desired=NodeState.QUARANTINED, snapshot=observed(back), now=NOW)
    assert step.actions == (Drain(("again-b",)),)
    assert step.case.ray_nodes == ("again-b", "id-b")


def test_a_node_is_probed_once_it_has_returned_and_the_policy_requests_the_probe() -> None:
    early = advance(case(), desired=NodeState.QUARANTINED, snapshot=observed(probe_only(BAD)), now=NOW)
    away = advance(case(), desired=NodeState.PROBING, snapshot=observed(), now=NOW)
    there = advance(case(), desired=NodeState.PROBING, snapshot=observed(probe_only(BAD)), now=NOW)
    assert (early.case.stage, early.actions) == (RemediationStage.REPLACED, (RunHook("replace"),))
    assert (away.case.progress, away.actions) == (
        (NodeState.PROBING, RemediationStage.REPLACED),
        (RunHook("replace"), RunHook("probe-only")),
    )
    assert (there.case.progress, there.actions) == ((NodeState.PROBING, RemediationStage.REPLACED), (Probe("again-b"),))


def test_a_case_ends_with_the_release_and_stays_open_while_cordoned() -> None:
    released = advance(case(), desired=NodeState.PROBATION, snapshot=observed(DRAINED), now=NOW)
    kept = advance(case(), desired=NodeState.CORDONED, snapshot=observed(), now=NOW)
    assert (released.case.state, released.actions) == (NodeState.PROBATION, (RunHook("release"),))
    assert kept.case.progress == (NodeState.CORDONED, RemediationStage.REPLACED)


def test_a_stage_keeps_the_time_of_its_start() -> None:
    later = NOW + timedelta(seconds=5)
    first = advance(case(), desired=NodeState.QUARANTINED, snapshot=observed(node(BAD)), now=NOW).case
    again = advance(first, desired=NodeState.QUARANTINED, snapshot=observed(replace(node(BAD))), now=later).case
    after = advance(again, desired=NodeState.QUARANTINED, snapshot=observed(DRAINED), now=later).case
    assert (again.since, after.since) == (NOW, later)
