"""State kept between reconciles, for any history of writes and crashes and any forward clock."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.schemas.target_state import SPENT_MAX, Readings, TargetState
from api.schemas.targets import Target, TargetSpec
from deploy.actuators.base import TargetSnapshot
from deploy.controller.rollout import plan_changes, raise_to_floor
from deploy.controller.target_state import (
    has_grant,
    settled_s,
    window_left,
    window_opens_at,
    with_change_begun,
    with_goal,
    with_grant,
    with_refusal,
    with_refusal_in_force,
    with_spent,
    with_verified,
    without_goal,
)

START = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
GPUS = ("A100", "H100", "L4")
COUNTS = st.fixed_dictionaries(dict.fromkeys(GPUS, st.integers(0, 8)))


def after(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def target(**spec: object) -> Target:
    application = {"dashboard_url": "http://ray:8265", "application": "chat", "deployments": {"H100": "on-H100"}}
    described = {"workload": "chat", "application": application, "plan_id": "p1", "mode": "apply"} | spec
    return Target(name="chat", version=1, spec=TargetSpec.model_validate(described))


@given(data=st.data(), window_s=st.floats(1.0, 1000.0), most=st.integers(1, 20), min_replicas=st.integers(0, 10))
def test_changes_in_a_window_stay_within_its_limit_and_capacity_holds(
    data: st.DataObject, window_s: float, most: int, min_replicas: int
) -> None:
    """Reconciles at any time, kills after the state was stored and before or between writes, and changing plans."""
    max_step = data.draw(st.integers(1, 20), label="max_step")
    plans = data.draw(st.lists(COUNTS, min_size=1, max_size=3), label="plans")
    spec = target(max_step_per_window=most, window_s=window_s, max_step=max_step).spec
    kept, now_s = TargetState(), 0.0
    world = data.draw(COUNTS, label="world")
    floor = min(sum(world.values()), min_replicas)
    moved: list[tuple[float, int]] = []
    for _ in range(30):
        now_s += data.draw(st.floats(0.0, window_s / 2.0), label="pause")
        planned = data.draw(st.sampled_from(plans), label="plan")
        wanted = raise_to_floor(planned=planned, requested=world, min_replicas=min_replicas)
        left = window_left(kept, spec, now=after(now_s))
        assert (left > 0) == (window_opens_at(kept, spec, now=after(now_s)) is None)
        observation = TargetSnapshot(requested=dict(world), running=dict(world))
        steps = plan_changes(wanted=wanted, observation=observation, max_step=left) if left else ()
        if not steps:
            continue
        kept = with_spent(kept, spec, replicas=sum(step.size for step in steps), now=after(now_s))
        for step in steps[: data.draw(st.integers(0, len(steps)), label="writes before the end")]:
            world[step.part] = step.replicas_after
            moved.append((now_s, step.size))
        assert sum(world.values()) >= floor, "fewer replicas than the minimum"
        assert len(kept.spent) <= SPENT_MAX
        assert TargetState.model_validate_json(kept.model_dump_json()) == kept
    for ends_s, _size in moved:
        # Times are stored to the microsecond.
        within = [size for at_s, size in moved if ends_s - window_s + 1e-5 < at_s <= ends_s]
        assert sum(within) <= most


@given(wanted=COUNTS, start=COUNTS, most=st.integers(1, 5))
def test_a_window_delays_a_rollout_and_never_prevents_it(
    wanted: dict[str, int], start: dict[str, int], most: int
) -> None:
    spec, kept, world, now_s = target(max_step_per_window=most, window_s=60.0).spec, TargetState(), dict(start), 0.0
    for _ in range(200):
        if world == wanted:
            break
        opens_at = window_opens_at(kept, spec, now=after(now_s))
        now_s = now_s if opens_at is None else (opens_at - START).total_seconds()
        left = window_left(kept, spec, now=after(now_s))
        assert left > 0, "the window opens at the announced time"
        observation = TargetSnapshot(requested=dict(world), running=dict(world))
        steps = plan_changes(wanted=wanted, observation=observation, max_step=left)
        kept = with_spent(kept, spec, replicas=sum(step.size for step in steps), now=after(now_s))
        world |= {step.part: step.replicas_after for step in steps}
    assert world == wanted


def test_a_clock_set_back_does_not_open_the_window() -> None:
    spec = target(max_step_per_window=2, window_s=60.0).spec
    kept = with_spent(TargetState(), spec, replicas=2, now=after(100.0))
    assert window_left(kept, spec, now=after(0.0)) == 0
    assert window_left(kept, spec, now=after(160.0)) == 2


def test_without_a_window_limit_no_changes_are_stored() -> None:
    limited = target(max_step_per_window=2).spec
    kept = with_spent(TargetState(), limited, replicas=2, now=START)
    assert with_spent(kept, target().spec, replicas=2, now=START).spent == ()
    assert window_left(kept, target(max_step=7).spec, now=START) == 7


def test_the_age_of_a_goal_restarts_when_the_planned_counts_change() -> None:
    first = with_goal(TargetState(), planned={"H100": 2}, now=START)
    assert with_goal(first, planned={"H100": 2}, now=after(9.0)) is first
    assert settled_s(first, now=after(9.0)) == 9.0
    assert settled_s(first, now=after(-9.0)) == 0.0
    other = with_goal(first, planned={"H100": 3}, now=after(9.0))
    assert settled_s(other, now=after(9.0)) == 0.0
    assert settled_s(without_goal(other), now=after(99.0)) == 0.0


def test_the_health_baseline_stays_until_the_change_is_checked() -> None:
    good, bad = Readings(error_rate=0.01), Readings(error_rate=0.5)
    first = with_change_begun(TargetState(), plan_id="p1", before=good, now=START)
    again = with_change_begun(first, plan_id="p1", before=None, now=after(5.0))
    assert again.change is not None
    assert (again.change.began_at, again.change.moved_at, again.change.before) == (START, after(5.0), good)
    other = with_change_begun(again, plan_id="p2", before=bad, now=after(9.0))
    assert other.change is not None
    assert (other.change.plan_id, other.change.began_at, other.change.before) == ("p2", after(9.0), good)
    assert with_verified(other, plan_id="p2").change is None


@pytest.mark.parametrize(("plan_id", "version", "stays"), [("p1", 1, True), ("p2", 1, False), ("p1", 2, False)])
def test_a_refusal_applies_to_one_plan_and_one_version_of_the_target(
    plan_id: str, version: int, *, stays: bool
) -> None:
    state = with_refusal(TargetState(), target(), plan_id="p1", reason="worse", now=START)
    later = target(plan_id=plan_id).model_copy(update={"version": version})
    assert (with_refusal_in_force(state, later).refused is not None) is stays


def test_a_used_approval_lifts_a_refusal_and_ends_with_the_goal() -> None:
    state = with_refusal(TargetState(), target(), plan_id="p1", reason="worse", now=START)
    state = with_grant(state, target(), approval_number=3)
    assert (state.refused, state.approvals_used, has_grant(state, target())) == (None, 3, True)
    assert not has_grant(state, target(plan_id="p2"))
    assert not has_grant(without_goal(state), target())
