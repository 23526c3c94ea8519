"""What a case needs next, seen by seen."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

pytest.importorskip("ray.train", reason="ray.train is not there", exc_type=ImportError)

from api.schemas.remediation import MAX_RAY_NODES, CasePhase, CaseSpec, RunCase
from deploy.remediation.case_state_machine import CallOut, Drain, End, Probe, Wanted, advance
from deploy.remediation.cluster_interface import Sight
from deploy.remediation.ray_nodes import RayNode
from deploy.training.run_status import RunPhase, RunView
from tests.deploy.remediation.world import node, on_probation, run_on

NOW = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)
OUT = Wanted(out=True)
BAD = "b"
DRAINED = node(BAD, draining=True)


def case(**more: Any) -> CaseSpec:
    begun = {"node": BAD, "phase": CasePhase.WANTED, "phase_since": NOW, "opened_at": NOW, "deadline": NOW}
    return CaseSpec.model_validate(begun | {"ray_nodes": (f"id-{BAD}",)} | more)


def sight(*nodes: RayNode, runs: tuple[RunView, ...] = (), silent: frozenset[str] = frozenset()) -> Sight:
    return Sight(nodes=(node("a"), *nodes), runs=runs, silent=silent)


def test_a_node_that_takes_work_is_drained_before_anything_else() -> None:
    move = advance(case(), wanted=OUT, sight=sight(node(BAD), runs=(run_on("a", BAD),)), now=NOW)
    assert (move.case.phase, move.acts) == (CasePhase.DRAINING, (Drain(("id-b",)),))
    assert [(each.run, each.attempt, each.workers, each.checkpoint_step) for each in move.case.runs] == [
        ("llm", 1, 1, 9)
    ]


def test_a_node_that_comes_back_ever_again_stays_a_case_that_the_service_takes() -> None:
    often = case(ray_nodes=tuple(f"a-{number:03}" for number in range(MAX_RAY_NODES)))
    move = advance(often, wanted=OUT, sight=sight(node(BAD, ray_id="z-new")), now=NOW)
    assert move.acts == (Drain(("z-new",)),)
    assert "z-new" in CaseSpec.model_validate(move.case.model_dump()).ray_nodes
    assert len(move.case.ray_nodes) == MAX_RAY_NODES


def test_the_workers_of_a_hang_are_ended_at_once_on_that_node_only() -> None:
    others = run_on("a", name="other")
    move = advance(case(), wanted=OUT, sight=sight(DRAINED, runs=(run_on("a", BAD), others)), now=NOW)
    assert move.case.phase is CasePhase.MIGRATING
    assert move.acts == (End((("llm", 1),), frozenset({"id-b"})),)


def test_ranks_that_still_step_are_given_time_for_one_checkpoint() -> None:
    slow = case(patient=True, deadline=NOW + timedelta(seconds=60))
    before = advance(slow, wanted=OUT, sight=sight(DRAINED, runs=(run_on("a", BAD),)), now=NOW)
    assert (before.case.phase, before.acts) == (CasePhase.EVACUATING, ())
    came = advance(before.case, wanted=OUT, sight=sight(DRAINED, runs=(run_on("a", BAD, checkpoint_step=19),)), now=NOW)
    late = advance(
        before.case, wanted=OUT, sight=sight(DRAINED, runs=(run_on("a", BAD),)), now=NOW + timedelta(seconds=60)
    )
    assert [came.case.phase, late.case.phase] == [CasePhase.MIGRATING] * 2


def test_workers_of_a_group_that_ray_is_ending_are_ended_too_for_it_waits_for_them() -> None:
    ending = run_on("a", BAD, phase=RunPhase.ENDING)
    slow = case(patient=True, deadline=NOW + timedelta(seconds=60))
    assert advance(slow, wanted=OUT, sight=sight(DRAINED, runs=(ending,)), now=NOW).case.phase is CasePhase.MIGRATING


@pytest.mark.parametrize(
    ("view", "phase", "resumed"),
    [
        (run_on(phase=RunPhase.STARTING), CasePhase.RESTARTING, None),
        (run_on("a", "c", attempt=2), CasePhase.RESTARTING, None),
        (run_on("a", "c", attempt=2, attempt_step=19), CasePhase.REPLACED, 19),
    ],
)
def test_a_run_is_moved_once_it_has_reported_a_step_elsewhere(
    view: RunView, phase: CasePhase, resumed: int | None
) -> None:
    begun = case(runs=(RunCase(run="llm", attempt=1, workers=1, checkpoint_step=9),))
    move = advance(begun, wanted=OUT, sight=sight(DRAINED, runs=(view,)), now=NOW)
    assert (move.case.phase, move.case.runs[0].resumed_step) == (phase, resumed)


def test_a_run_that_is_over_is_not_waited_for_but_one_that_does_not_answer_is() -> None:
    begun = case(runs=(RunCase(run="llm", attempt=1, workers=1),))
    over = advance(begun, wanted=OUT, sight=sight(), now=NOW)
    silent = advance(begun, wanted=OUT, sight=sight(silent=frozenset({"llm"})), now=NOW)
    assert (over.case.phase, over.case.runs[0].over) == (CasePhase.REPLACED, True)
    assert (silent.case.phase, silent.case.runs[0].over) == (CasePhase.RESTARTING, False)


def test_a_run_that_comes_back_to_the_node_is_ended_there_again() -> None:
    begun = case(runs=(RunCase(run="llm", attempt=1, workers=1),))
    again = run_on("a", BAD, attempt=2)
    move = advance(begun, wanted=OUT, sight=sight(DRAINED, runs=(again,)), now=NOW)
    assert move.acts == (End((("llm", 2),), frozenset({"id-b"})),)


def test_a_node_that_comes_back_to_work_while_it_is_out_is_drained_again() -> None:
    back = node(BAD, ray_id="again-b")
    move = advance(case(), wanted=OUT, sight=sight(back), now=NOW)
    assert move.acts == (Drain(("again-b",)),)
    assert move.case.ray_nodes == ("again-b", "id-b")


def test_it_is_probed_once_it_is_back_on_probation_and_the_policy_wants_it() -> None:
    probed = Wanted(out=True, probed=True)
    early = advance(case(), wanted=OUT, sight=sight(on_probation(BAD)), now=NOW)
    away = advance(case(), wanted=probed, sight=sight(), now=NOW)
    there = advance(case(), wanted=probed, sight=sight(on_probation(BAD)), now=NOW)
    assert (early.case.phase, early.acts) == (CasePhase.REPLACED, (CallOut("replace"),))
    assert (away.case.phase, away.acts) == (CasePhase.PROBING, (CallOut("replace"), CallOut("probation")))
    assert (there.case.phase, there.acts) == (CasePhase.PROBING, (Probe("again-b"),))


def test_it_ends_when_the_policy_wants_it_no_more_or_stays_out() -> None:
    released = advance(case(), wanted=Wanted(out=False), sight=sight(DRAINED), now=NOW)
    kept = advance(case(), wanted=Wanted(out=True, kept=True), sight=sight(), now=NOW)
    assert (released.case.phase, released.acts) == (CasePhase.RELEASED, (CallOut("release"),))
    assert kept.case.phase is CasePhase.KEPT


def test_a_phase_keeps_the_moment_since_which_it_lasts() -> None:
    later = NOW + timedelta(seconds=5)
    first = advance(case(), wanted=OUT, sight=sight(node(BAD)), now=NOW).case
    again = advance(first, wanted=OUT, sight=sight(replace(node(BAD))), now=later).case
    after = advance(again, wanted=OUT, sight=sight(DRAINED), now=later).case
    assert (again.phase_since, after.phase_since) == (NOW, later)
