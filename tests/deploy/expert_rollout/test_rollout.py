"""A whole rollout over replica agents: one replica at a time, complete or rolled back, from any state."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.expert_rollout.rollout import DeploymentState, Done, Refused, Wait, Write, next_move, roll_back_move
from fleetwright.expert_rollout.messages import KEY
from tests.deploy.expert_rollout.replica_group import NEW, OLD, OTHER, ReplicaGroup

pytestmark = pytest.mark.anyio


async def group(replicas: int = 4) -> ReplicaGroup:
    found = ReplicaGroup(requested=replicas)
    await found.fill()
    return found


async def test_replicas_load_the_map_one_after_the_other() -> None:
    found = await group()
    assert await found.settle(NEW) == Done()
    assert found.loaded == {"new"}
    assert found.max_out == 1
    assert found.loads == 4
    assert found.command is not None
    assert (found.command.good, found.command.turn) == (NEW, None)


async def test_no_replica_gets_a_turn_before_all_have_received_the_order() -> None:
    found = await group(3)
    assert isinstance(found.control(NEW), Write)
    for name in ("r001", "r002"):
        await found.deliver(name)
    move = found.control(NEW)
    assert isinstance(move, Wait)
    assert "1 of 3 replicas have not received" in move.reason
    await found.deliver("r003")
    move = found.control(NEW)
    assert isinstance(move, Write)
    assert move.command.turn == "r001"
    move = found.control(NEW)
    assert isinstance(move, Wait), "not even the replica with the turn has received the command"
    for name in found.replicas:
        await found.deliver(name)
    move = found.control(NEW)
    assert isinstance(move, Wait)
    assert "r001 is changing" in move.reason


async def test_a_change_of_other_keys_reaches_all_replicas_first_and_is_kept() -> None:
    found = await group(2)
    found.control(NEW)
    for name in found.replicas:
        await found.deliver(name)
    found.config["clock"] = 3
    assert isinstance(found.control(NEW), Wait)
    assert await found.settle(NEW) == Done()
    assert found.config["clock"] == 3


async def test_a_map_that_one_replica_refuses_on_receipt_is_loaded_by_none() -> None:
    found = await group()
    found.fails_check.add(NEW.text())
    move = await found.settle(NEW)
    assert isinstance(move, Refused)
    assert "r001 refuses it: does not fit" in move.reason
    assert found.loads == 0
    assert found.loaded == {None}


async def test_a_map_that_fails_in_an_engine_is_rolled_back_everywhere() -> None:
    found = await group()
    assert await found.settle(OLD) == Done()
    found.replicas["r003"].engine.fails_load = {NEW.text()}
    move = await found.settle(NEW)
    assert isinstance(move, Refused)
    assert "r003 refuses it: does not start" in move.reason
    assert found.loaded == {"old"}
    assert found.max_out == 1
    assert found.replicas["r004"].engine.loads == [OLD.text()], "r004 never got a turn"


async def test_a_refused_map_is_retried_only_with_a_new_attempt() -> None:
    found = await group()
    found.fails_load.add(NEW.text())
    assert isinstance(await found.settle(NEW), Refused)
    loads = found.loads
    assert isinstance(await found.settle(NEW), Refused)
    assert found.loads == loads
    found.fails_load.clear()
    assert await found.settle(NEW, attempt=2) == Done()
    assert found.loaded == {"new"}


async def test_new_replicas_during_a_rollout_start_with_the_previous_map() -> None:
    found = await group()
    await found.settle(OLD)
    while found.command is None or found.command.turn != "r002":
        found.control(NEW)
        for name in list(found.replicas):
            await found.deliver(name)
            await found.finish(name)
    await found.start()
    assert found.replicas["r005"].engine.loads == [OLD.text()]
    found.requested = 5
    assert await found.settle(NEW) == Done()
    await found.start()
    assert found.replicas["r006"].engine.loads == [NEW.text()]


async def test_the_map_can_change_during_a_rollout() -> None:
    found = await group()
    while found.command is None or found.command.turn != "r002":
        found.control(NEW)
        for name in list(found.replicas):
            await found.deliver(name)
            if found.command is None or found.command.turn != "r002":
                await found.finish(name)
    assert isinstance(found.control(OTHER), Wait), "r002 is draining"
    assert await found.settle(OTHER) == Done()
    assert (found.loaded, found.max_out) == ({"other"}, 1)


async def test_a_damaged_order_is_replaced() -> None:
    found = await group()
    await found.settle(OLD)
    found.config[KEY]["next"]["packed"] = "no base64"
    number = 10
    found.config[KEY]["number"] = number
    assert await found.settle(OLD) == Done()
    assert found.command is not None
    assert found.command.good == OLD
    assert found.loads == 4, "all replicas already had the map"


async def test_an_invalid_map_is_refused_and_a_rollout_in_progress_is_rolled_back() -> None:
    found = await group()
    assert roll_back_move(reason="no", state=found.state()) == Refused("no")
    await found.settle(OLD)
    while found.command is None or found.command.turn != "r003":
        found.control(NEW)
        for name in list(found.replicas):
            await found.deliver(name)
            await found.finish(name)
    for _ in range(20):
        move: Any = roll_back_move(reason="no", state=found.state())
        if isinstance(move, Write):
            found.config = {KEY: move.command.document()}
        for name in list(found.replicas):
            await found.deliver(name)
            await found.finish(name)
    assert roll_back_move(reason="no", state=found.state()) == Refused("no")
    assert (found.loaded, found.max_out) == ({"old"}, 1)


async def test_a_replica_that_ignores_its_turn_ends_the_rollout() -> None:
    found = await group(2)
    while found.command is None or found.command.turn is None:
        found.control(NEW)
        for name in found.replicas:
            await found.deliver(name)
    name = found.command.turn
    await found.finish(name)
    idle = {**found.statuses, name: found.statuses["r002"]}
    state = found.state()
    move = next_move(
        wanted=NEW,
        attempt=1,
        state=DeploymentState(
            requested=2, running=state.running, unsettled=0, stamp=state.stamp, command=state.command, statuses=idle
        ),
    )
    assert isinstance(move, Write)
    assert move.command.refusal == f"{name} received its turn and did not load the map"


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("control"), st.just(0)),  # frequent events are repeated
        st.tuples(st.just("deliver to all"), st.just(0)),
        st.tuples(st.just("control"), st.just(0)),
        st.tuples(st.just("deliver to all"), st.just(0)),
        st.tuples(st.just("control"), st.integers(0, 1)),
        st.tuples(st.just("deliver"), st.integers(0, 5)),
        st.tuples(st.just("finish"), st.integers(0, 5)),
        st.tuples(st.just("kill"), st.integers(0, 5)),
        st.tuples(st.just("start"), st.just(0)),
        st.tuples(st.just("scale"), st.integers(2, 5)),
        st.tuples(st.just("operator"), st.integers(0, 9)),
        st.tuples(st.just("damage"), st.integers(0, 3)),
    ),
    max_size=60,
)


async def apply_event(found: ReplicaGroup, event: str, value: int) -> None:
    names = sorted(found.replicas)
    name = names[value % len(names)] if names else None
    match event:
        case "deliver" if name:
            await found.deliver(name)
        case "deliver to all":
            for each in names:
                await found.deliver(each)
        case "finish" if name:
            await found.finish(name)
        case "control":
            found.control((NEW, OTHER)[value])
        case "kill" if name:
            found.kill(name)
        case "start" if len(names) < found.requested:
            await found.start()
        case "scale":
            found.requested = value
        case "operator":
            found.config = {**found.config, "clock": value}
        case "damage":
            damaged: list[Any] = [None, {"number": "x"}, [], {"number": 1}]
            found.config = {**found.config, KEY: damaged[value]}
    for surplus in sorted(found.replicas)[found.requested :]:
        found.kill(surplus)
    await found.let_tasks_run()


@given(
    events=EVENTS,
    refusing=st.sampled_from([None, "check", "load"]),
    loaded_before=st.booleans(),
)
def test_at_most_one_replica_drains_and_every_rollout_ends(
    *, events: list[tuple[str, int]], refusing: str | None, loaded_before: bool
) -> None:
    async def run_events() -> None:
        found = await group()
        if loaded_before:
            await found.settle(OLD)
        if refusing == "check":
            found.fails_check.add(NEW.text())
        if refusing == "load":
            found.fails_load.add(NEW.text())
        for event, value in events:
            await apply_event(found, event, value)
            assert found.max_out <= 1
        move = await found.settle(NEW)
        assert found.max_out <= 1
        if refusing is None:
            assert move == Done()
            assert found.loaded == {"new"}
        else:
            assert isinstance(move, Refused)
            assert "new" not in found.loaded
            assert len(found.loaded) == 1

    asyncio.run(run_events())
