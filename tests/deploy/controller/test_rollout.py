"""Make before break for any plan, any start, and any target that moves towards the requested counts."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.actuators.base import Replicas, TargetSnapshot
from deploy.controller.rollout import missing_replicas, plan_changes, raise_to_floor, verify

GPUS = ("A100", "H100", "L4")
COUNTS = st.fixed_dictionaries(dict.fromkeys(GPUS, st.integers(0, 12)))


def observed(*, requested: Replicas, running: Replicas | None = None) -> TargetSnapshot:
    return TargetSnapshot(requested=requested, running=requested if running is None else running)


def moves(**wanted_requested_running: tuple[int, int, int]) -> dict[str, tuple[int, int]]:
    """The first steps for `GPU=(wanted, requested, running)`, as GPU -> (before, after)."""
    wanted, requested, running = (
        {gpu: numbers[index] for gpu, numbers in wanted_requested_running.items()} for index in range(3)
    )
    steps = plan_changes(wanted=wanted, observation=observed(requested=requested, running=running), max_step=1_000)
    return {step.part: (step.replicas_before, step.replicas_after) for step in steps}


@dataclass
class World:
    """A target whose replicas start and stop at arbitrary times, towards the requested counts."""

    requested: dict[str, int]
    running: dict[str, int]

    def drift(self, data: st.DataObject) -> None:
        """Carry out some of the requested starts and stops."""
        for gpu, requested in self.requested.items():
            lowest, highest = sorted((self.running[gpu], requested))
            self.running[gpu] = data.draw(st.integers(lowest, highest), label=f"running {gpu}")

    def settle(self) -> None:
        """Carry out all of them."""
        self.running = dict(self.requested)


def test_all_additions_are_requested_before_any_removal() -> None:
    assert moves(H100=(4, 1, 1), L4=(0, 6, 6)) == {"H100": (1, 4)}


def test_no_replica_is_removed_while_an_added_one_is_not_running() -> None:
    assert moves(H100=(4, 4, 3), L4=(0, 6, 6)) == {}


def test_surplus_replicas_are_removed_once_the_added_ones_run() -> None:
    assert moves(H100=(4, 4, 4), L4=(0, 6, 6)) == {"L4": (6, 0)}


def test_a_lost_replica_stops_the_removals() -> None:
    assert moves(H100=(4, 4, 2), L4=(0, 3, 3)) == {}


def test_requested_replicas_that_never_start_can_be_removed() -> None:
    """A rollback while the H100 replicas are still missing removes them without a wait for any start."""
    assert moves(H100=(0, 4, 0), L4=(6, 6, 6)) == {"H100": (4, 0)}


def test_the_step_limit_counts_replicas_over_all_types() -> None:
    steps = plan_changes(
        wanted={"A100": 2, "H100": 9}, observation=observed(requested={"A100": 0, "H100": 0}), max_step=5
    )
    assert [(step.part, step.replicas_after, step.size) for step in steps] == [("A100", 2, 2), ("H100", 3, 3)]


@given(wanted=COUNTS, start=COUNTS, max_step=st.integers(1, 20), data=st.data())
def test_capacity_holds_throughout_and_the_plan_is_reached(
    wanted: dict[str, int], start: dict[str, int], max_step: int, data: st.DataObject
) -> None:
    world = World(requested=dict(start), running=dict(start))
    to_do = sum(abs(wanted[gpu] - start[gpu]) for gpu in GPUS)
    reached_up = False
    for round_number in range(3 * to_do + 3):
        if round_number < 2 * to_do:
            world.drift(data)
        else:
            world.settle()  # the drawn target must settle at some point
        reached_up = reached_up or all(world.running[gpu] >= wanted[gpu] for gpu in GPUS)
        if not reached_up:
            assert all(world.running[gpu] >= start[gpu] for gpu in GPUS), (
                "a replica was removed before the added ones ran"
            )
        assert all(world.running[gpu] >= min(start[gpu], wanted[gpu]) for gpu in GPUS)

        observation = TargetSnapshot(requested=dict(world.requested), running=dict(world.running))
        steps = plan_changes(wanted=wanted, observation=observation, max_step=max_step)
        assert sum(step.size for step in steps) <= max_step
        assert all(step.size > 0 and step.replicas_before == world.requested[step.part] for step in steps)
        for step in steps:
            world.requested[step.part] = step.replicas_after
    world.settle()
    assert world.running == wanted


@given(wanted=COUNTS, max_step=st.integers(1, 20))
def test_no_steps_are_planned_when_the_counts_match(wanted: dict[str, int], max_step: int) -> None:
    observation = observed(requested=wanted)
    assert plan_changes(wanted=wanted, observation=observation, max_step=max_step) == ()
    assert verify(wanted=wanted, observation=observation)
    assert missing_replicas(wanted=wanted, observation=observation) == {}


@given(wanted=COUNTS, requested=COUNTS, running=COUNTS)
def test_verify_requires_both_requested_and_running_counts(
    wanted: dict[str, int], requested: dict[str, int], running: dict[str, int]
) -> None:
    settled = verify(wanted=wanted, observation=observed(requested=requested, running=running))
    assert settled == (requested == wanted and running == wanted)


@given(planned=COUNTS, requested=COUNTS, min_replicas=st.integers(0, 40))
def test_min_replicas_add_only_the_shortfall_of_the_plan(
    planned: dict[str, int], requested: dict[str, int], min_replicas: int
) -> None:
    wanted = raise_to_floor(planned=planned, requested=requested, min_replicas=min_replicas)
    assert all(wanted[gpu] >= planned[gpu] for gpu in GPUS)
    assert sum(wanted.values()) == max(min_replicas, sum(planned.values()))
    if sum(requested.values()) >= sum(planned.values()) >= min_replicas:
        assert wanted == planned


@given(planned=COUNTS, requested=COUNTS, min_replicas=st.integers(0, 40), max_step=st.integers(1, 20))
def test_min_replicas_do_not_cause_oscillation_during_a_rollout(
    planned: dict[str, int], requested: dict[str, int], min_replicas: int, max_step: int
) -> None:
    """Each reconcile computes the floor from the counts requested by then; the steps must converge."""
    present = dict(requested)
    for _ in range(3 * (sum(requested.values()) + sum(planned.values()) + min_replicas) + 3):
        wanted = raise_to_floor(planned=planned, requested=present, min_replicas=min_replicas)
        steps = plan_changes(wanted=wanted, observation=observed(requested=present), max_step=max_step)
        if not steps:
            break
        present |= {step.part: step.replicas_after for step in steps}
        assert sum(present.values()) >= min(min_replicas, sum(requested.values()))
    assert raise_to_floor(planned=planned, requested=present, min_replicas=min_replicas) == present


@pytest.mark.parametrize(
    ("planned", "requested", "wanted"),
    [
        pytest.param(
            {"A100": 0, "L4": 0}, {"A100": 1, "L4": 5}, {"A100": 0, "L4": 3}, id="kept-where-most-is-left-over"
        ),
        pytest.param({"A100": 0, "L4": 0}, {"A100": 2, "L4": 2}, {"A100": 2, "L4": 1}, id="kept-by-name-when-equal"),
        pytest.param(
            {"A100": 0, "L4": 2}, {"A100": 0, "L4": 0}, {"A100": 0, "L4": 3}, id="added-where-most-is-planned"
        ),
        pytest.param({"A100": 3, "L4": 1}, {"A100": 0, "L4": 9}, {"A100": 3, "L4": 1}, id="plan-is-enough"),
    ],
)
def test_min_replicas_of_three_are_distributed_over_gpu_types(
    planned: dict[str, int], requested: dict[str, int], wanted: dict[str, int]
) -> None:
    assert raise_to_floor(planned=planned, requested=requested, min_replicas=3) == wanted
