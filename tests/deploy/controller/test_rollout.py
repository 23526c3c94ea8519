"""Make before break: for any plan, any starting point and any world that moves towards what it was asked for."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.actuators.base import Observation, Replicas
from deploy.controller.rollout import missing_replicas, plan_changes, raise_to_floor, verify

GPUS = ("A100", "H100", "L4")
COUNTS = st.fixed_dictionaries(dict.fromkeys(GPUS, st.integers(0, 12)))


def observed(*, asked: Replicas, running: Replicas | None = None) -> Observation:
    return Observation(requested=asked, running=asked if running is None else running)


def moves(**wanted_asked_running: tuple[int, int, int]) -> dict[str, tuple[int, int]]:
    """The first steps for `GPU=(wanted, asked, running)`, as GPU -> (before, after)."""
    wanted, asked, running = (
        {gpu: numbers[index] for gpu, numbers in wanted_asked_running.items()} for index in range(3)
    )
    steps = plan_changes(wanted=wanted, observation=observed(asked=asked, running=running), max_step=1_000)
    return {step.part: (step.replicas_before, step.replicas_after) for step in steps}


@dataclass
class World:
    """A target whose replicas start and stop when they please, towards what was asked for."""

    asked: dict[str, int]
    running: dict[str, int]

    def drift(self, data: st.DataObject) -> None:
        """Some of the asked-for starts and stops happen."""
        for gpu, asked in self.asked.items():
            lowest, highest = sorted((self.running[gpu], asked))
            self.running[gpu] = data.draw(st.integers(lowest, highest), label=f"running {gpu}")

    def settle(self) -> None:
        """All of them happen."""
        self.running = dict(self.asked)


def test_all_replicas_to_add_are_asked_for_before_any_is_given_up() -> None:
    assert moves(H100=(4, 1, 1), L4=(0, 6, 6)) == {"H100": (1, 4)}


def test_nothing_is_given_up_while_an_added_replica_is_not_running() -> None:
    assert moves(H100=(4, 4, 3), L4=(0, 6, 6)) == {}


def test_what_is_too_many_is_given_up_once_the_added_ones_run() -> None:
    assert moves(H100=(4, 4, 4), L4=(0, 6, 6)) == {"L4": (6, 0)}


def test_a_replica_lost_halfway_stops_the_giving_up() -> None:
    assert moves(H100=(4, 4, 2), L4=(0, 3, 3)) == {}


def test_replicas_that_never_start_can_be_taken_back() -> None:
    """The plan is undone while its H100s are still missing: nothing has to start before they are given up."""
    assert moves(H100=(0, 4, 0), L4=(6, 6, 6)) == {"H100": (4, 0)}


def test_the_step_limit_counts_replicas_over_all_types() -> None:
    steps = plan_changes(wanted={"A100": 2, "H100": 9}, observation=observed(asked={"A100": 0, "H100": 0}), max_step=5)
    assert [(step.part, step.replicas_after, step.size) for step in steps] == [("A100", 2, 2), ("H100", 3, 3)]


@given(wanted=COUNTS, start=COUNTS, max_step=st.integers(1, 20), data=st.data())
def test_capacity_holds_throughout_and_the_plan_is_reached(
    wanted: dict[str, int], start: dict[str, int], max_step: int, data: st.DataObject
) -> None:
    world = World(asked=dict(start), running=dict(start))
    to_do = sum(abs(wanted[gpu] - start[gpu]) for gpu in GPUS)
    reached_up = False
    for round_number in range(3 * to_do + 3):
        if round_number < 2 * to_do:
            world.drift(data)
        else:
            world.settle()  # at the latest now, or a drawn world could dawdle for ever
        reached_up = reached_up or all(world.running[gpu] >= wanted[gpu] for gpu in GPUS)
        if not reached_up:
            assert all(world.running[gpu] >= start[gpu] for gpu in GPUS), "broken before made"
        assert all(world.running[gpu] >= min(start[gpu], wanted[gpu]) for gpu in GPUS)

        observation = Observation(requested=dict(world.asked), running=dict(world.running))
        steps = plan_changes(wanted=wanted, observation=observation, max_step=max_step)
        assert sum(step.size for step in steps) <= max_step
        assert all(step.size > 0 and step.replicas_before == world.asked[step.part] for step in steps)
        for step in steps:
            world.asked[step.part] = step.replicas_after
    world.settle()
    assert world.running == wanted


@given(wanted=COUNTS, max_step=st.integers(1, 20))
def test_nothing_is_done_when_all_is_as_wanted(wanted: dict[str, int], max_step: int) -> None:
    observation = observed(asked=wanted)
    assert plan_changes(wanted=wanted, observation=observation, max_step=max_step) == ()
    assert verify(wanted=wanted, observation=observation)
    assert missing_replicas(wanted=wanted, observation=observation) == {}


@given(wanted=COUNTS, asked=COUNTS, running=COUNTS)
def test_settled_means_both_asked_for_and_running(
    wanted: dict[str, int], asked: dict[str, int], running: dict[str, int]
) -> None:
    settled = verify(wanted=wanted, observation=observed(asked=asked, running=running))
    assert settled == (asked == wanted and running == wanted)


@given(planned=COUNTS, asked=COUNTS, min_replicas=st.integers(0, 40))
def test_the_floor_adds_just_what_the_plan_lacks(
    planned: dict[str, int], asked: dict[str, int], min_replicas: int
) -> None:
    wanted = raise_to_floor(planned=planned, requested=asked, min_replicas=min_replicas)
    assert all(wanted[gpu] >= planned[gpu] for gpu in GPUS)
    assert sum(wanted.values()) == max(min_replicas, sum(planned.values()))
    if sum(asked.values()) >= sum(planned.values()) >= min_replicas:
        assert wanted == planned


@given(planned=COUNTS, asked=COUNTS, min_replicas=st.integers(0, 40), max_step=st.integers(1, 20))
def test_the_floor_holds_still_on_the_way_to_the_plan(
    planned: dict[str, int], asked: dict[str, int], min_replicas: int, max_step: int
) -> None:
    """The floor is drawn anew in each round from what is asked for by then; that must not go round in circles."""
    present = dict(asked)
    for _ in range(3 * (sum(asked.values()) + sum(planned.values()) + min_replicas) + 3):
        wanted = raise_to_floor(planned=planned, requested=present, min_replicas=min_replicas)
        steps = plan_changes(wanted=wanted, observation=observed(asked=present), max_step=max_step)
        if not steps:
            break
        present |= {step.part: step.replicas_after for step in steps}
        assert sum(present.values()) >= min(min_replicas, sum(asked.values()))
    assert raise_to_floor(planned=planned, requested=present, min_replicas=min_replicas) == present


@pytest.mark.parametrize(
    ("planned", "asked", "wanted"),
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
def test_floor_of_three(planned: dict[str, int], asked: dict[str, int], wanted: dict[str, int]) -> None:
    assert raise_to_floor(planned=planned, requested=asked, min_replicas=3) == wanted
