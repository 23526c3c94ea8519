"""What a case keeps of its acts."""

from datetime import UTC, datetime, timedelta

import pytest

pytest.importorskip("ray.train", reason="ray.train is not there", exc_type=ImportError)

from api.schemas.remediation import MAX_ACTS, CaseAct, CasePhase, CaseSpec
from deploy.remediation.action_runner import one_by_one, recorded, with_acts
from deploy.remediation.case_state_machine import CallOut, Drain, End, Probe

AT = datetime(2026, 1, 1, tzinfo=UTC)
CASE = CaseSpec(node="b", phase=CasePhase.PROBING, phase_since=AT, opened_at=AT)


def test_the_oldest_acts_go_but_no_hook_that_was_called() -> None:
    case = recorded(CASE, "drain", "id-b", at=AT)
    case = recorded(case, "hook-replace", "done", at=AT)
    for number in range(2 * MAX_ACTS):
        case = recorded(case, "probe", f"failed: {number} ms", at=AT + timedelta(seconds=number))
    assert len(case.acts) == MAX_ACTS
    assert case.acts[0].act == "hook-replace"
    assert case.acts[1].detail == f"failed: {MAX_ACTS + 1} ms"
    assert case.acts[-1].detail == f"failed: {2 * MAX_ACTS - 1} ms"


def test_the_same_act_right_after_is_on_record_once() -> None:
    case = recorded(CASE, "failed", "drain refused", at=AT)
    assert recorded(case, "failed", "drain refused", at=AT + timedelta(seconds=1)) == case


def test_acts_that_are_held_here_join_those_on_record_once() -> None:
    drain, end, probe = (CaseAct(at=AT, act=act) for act in ("drain", "end-workers", "probe"))
    stored = with_acts(CASE, (drain, end))
    assert with_acts(stored, (drain, probe)).acts == (drain, end, probe)


def test_an_act_on_several_is_several() -> None:
    ids = frozenset({"x", "y"})
    assert list(
        one_by_one((Drain(("x", "y")), End((("llm", 1), ("moe", 2)), ids), Probe("x"), CallOut("replace")))
    ) == [
        Drain(("x",)),
        Drain(("y",)),
        End((("llm", 1),), ids),
        End((("moe", 2),), ids),
        Probe("x"),
        CallOut("replace"),
    ]
