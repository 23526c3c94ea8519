"""The actions that a remediation case stores."""

from datetime import UTC, datetime, timedelta

import pytest

pytest.importorskip("ray.train", reason="ray.train is not installed", exc_type=ImportError)

from api.schemas.remediation import MAX_ACTIONS, CaseAction, CaseSpec, RemediationStage
from deploy.remediation.action_runner import with_action, with_actions
from deploy.remediation.actuator import Probe, RunHook
from deploy.remediation.case_state_machine import Drain, EndWorkers
from deploy.remediation.ray_actuator import split
from faults.quarantine import NodeState

AT = datetime(2026, 1, 1, tzinfo=UTC)
CASE = CaseSpec(node="b", state=NodeState.PROBING, stage=RemediationStage.REPLACED, since=AT, opened_at=AT)


def test_the_oldest_actions_are_dropped_but_no_hook() -> None:
    case = with_action(CASE, "drain", "id-b", at=AT)
    case = with_action(case, "hook-replace", "done", at=AT)
    for number in range(2 * MAX_ACTIONS):
        case = with_action(case, "probe", f"failed: {number} ms", at=AT + timedelta(seconds=number))
    assert len(case.actions) == MAX_ACTIONS
    assert case.actions[0].action == "hook-replace"
    assert case.actions[1].detail == f"failed: {MAX_ACTIONS + 1} ms"
    assert case.actions[-1].detail == f"failed: {2 * MAX_ACTIONS - 1} ms"


def test_a_repeated_action_is_recorded_once() -> None:
    case = with_action(CASE, "failed", "drain refused", at=AT)
    assert with_action(case, "failed", "drain refused", at=AT + timedelta(seconds=1)) == case


def test_unstored_actions_join_the_stored_ones_once() -> None:
    drain, end, probe = (CaseAction(at=AT, action=action) for action in ("drain", "end-workers", "probe"))
    stored = with_actions(CASE, (drain, end))
    assert with_actions(stored, (drain, probe)).actions == (drain, end, probe)


def test_an_action_on_several_nodes_is_split() -> None:
    ids = frozenset({"x", "y"})
    assert list(
        split((Drain(("x", "y")), EndWorkers((("llm", 1), ("moe", 2)), ids), Probe("x"), RunHook("replace")))
    ) == [
        Drain(("x",)),
        Drain(("y",)),
        EndWorkers((("llm", 1),), ids),
        EndWorkers((("moe", 2),), ids),
        Probe("x"),
        RunHook("replace"),
    ]
