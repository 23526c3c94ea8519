"""A router goes from one plan's weights to another's while counts change, and is never ahead of its replicas."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.actuators.base import Observation
from deploy.controller.config_changes import Progress, ready_changes, without_blocked_decreases
from deploy.controller.rollout import plan_changes
from deploy.controller.table_transition import RouterState, table_changes
from deploy.router.table import CellWeights, Route, RoutingTable

NAMES = ("a", "b", "c")
SHARE = ((1.0,),)


def table(version: str, replicas: Mapping[str, int], *, edges: tuple[int, ...] = (100,)) -> RoutingTable:
    """Weights by replicas."""
    used = {name: count for name, count in replicas.items() if count}
    total = sum(used.values())
    return RoutingTable(
        version=version,
        input_tokens=edges,
        output_tokens=(10,),
        share=SHARE * len(edges),
        routes={name: Route(replicas=count, most_in_flight=8) for name, count in used.items()},
        cells=(CellWeights(row=0, column=0, weights={name: count / total for name, count in used.items()}),),
    )


def router(table: RoutingTable | None, *, in_every_replica: bool = True) -> RouterState:
    return RouterState(deployment="Router", table=table, in_every_replica=in_every_replica)


OLD, NEW = table("old", {"a": 2}), table("new", {"b": 1, "c": 1})


def test_nothing_is_left_once_all_have_heard() -> None:
    assert table_changes(NEW, router=router(NEW), running={"b": 1, "c": 1}) == ()
    (left,) = table_changes(NEW, router=router(NEW, in_every_replica=False), running={"b": 1, "c": 1})
    assert (left.is_written, left.needs) == (True, Progress.ALL_RUNNING), "written, and still to be waited for"


def test_half_of_both_is_told_once_every_new_deployment_runs_something() -> None:
    (goal,) = table_changes(NEW, router=router(OLD), running={"a": 2, "b": 1, "c": 0})
    assert (goal.current, goal.planned, goal.needs) == ("old", "new", Progress.ALL_RUNNING)
    half, goal = table_changes(NEW, router=router(OLD), running={"a": 2, "b": 1, "c": 1})
    assert (half.planned, half.needs, half.is_intermediate) == ("new+", Progress.ANY, True)
    assert RoutingTable.model_validate(half.value).by_cell[0, 0] == {"a": 0.5, "b": 0.25, "c": 0.25}
    assert (
        table_changes(NEW, router=router(RoutingTable.model_validate(half.value)), running={"b": 1, "c": 1})[0].planned
        == "new"
    )


def test_plans_of_other_buckets_have_no_table_between_them() -> None:
    other = table("new", {"b": 1}, edges=(50, 100))
    (goal,) = table_changes(other, router=router(OLD), running={"a": 2, "b": 1})
    assert (goal.planned, goal.needs) == ("new", Progress.ALL_RUNNING)


@pytest.mark.parametrize(
    ("running", "when"), [({"b": 1, "c": 0}, Progress.ALL_RUNNING), ({"b": 1, "c": 2}, Progress.ANY)]
)
def test_a_router_without_a_table_gets_one_as_soon_as_it_can_be_followed(
    running: dict[str, int], when: Progress
) -> None:
    (goal,) = table_changes(NEW, router=router(None), running=running)
    assert (goal.current, goal.planned, goal.needs) == (None, "new", when)


def test_a_version_that_somebody_else_wrote_is_told_in_one_line() -> None:
    odd = OLD.model_copy(update={"version": "a\nb"})
    assert table_changes(NEW, router=router(odd), running={})[0].change.now == "a b"


counts = st.fixed_dictionaries({name: st.integers(0, 4) for name in NAMES}).filter(lambda found: any(found.values()))


@given(before=counts, after=counts, data=st.data())
def test_no_table_is_ever_ahead_of_its_replicas_and_none_is_given_up_before_all_have_heard(
    before: dict[str, int], after: dict[str, int], data: st.DataObject
) -> None:
    """Whatever the order in which replicas start and the router hears."""
    asked, running = dict(before), dict(before)
    told: RoutingTable | None = table("before", before) if data.draw(st.booleans()) else None
    heard, planned = True, table("after", after)
    for _ in range(60):
        observation = Observation(requested=dict(asked), running=dict(running))
        changes = table_changes(planned, router=router(told, in_every_replica=heard), running=running)
        steps = without_blocked_decreases(
            plan_changes(wanted=after, observation=observation, max_step=2), changes=changes
        )
        for telling in ready_changes(changes, wanted=after, observation=observation):
            told, heard = RoutingTable.model_validate(telling.value), False
        for step in steps:
            if step.replicas_after < step.replicas_before:
                assert told == planned
                assert heard
                assert all(running[name] >= count for name, count in after.items())
            asked[step.part] = step.replicas_after
        for name in NAMES:
            running[name] = min(running[name], asked[name])  # given up at once
            if running[name] < asked[name] and data.draw(st.booleans()):
                running[name] += 1
        heard = heard or data.draw(st.booleans())
        assert told is None or all(running[name] > 0 for name in told.routes), (
            "a table names a deployment that runs nothing"
        )
        assert all(running[name] >= min(before[name], after[name]) for name in NAMES)
        if not changes and running == after:
            break
    else:
        for name in NAMES:  # whatever was held up so far comes now
            assert asked[name] >= after[name]
