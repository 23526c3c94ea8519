"""The replica's side: received commands, draining, status, and return to service."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fleetwright.engines.placement_file import UnusableError
from fleetwright.expert_rollout.engines import FileThenRestart, LiveFile
from fleetwright.expert_rollout.messages import (
    KEY,
    DamagedError,
    EngineShape,
    MapFile,
    RolloutCommand,
    read_command,
    stamp_of,
)
from fleetwright.expert_rollout.replica_agent import BrokenError, ReplicaAgent
from tests.deploy.expert_rollout.replica_group import NEW, OLD, EngineDouble

pytestmark = pytest.mark.anyio

ME = "me"


def config(*, turn: str | None = ME, good: MapFile | None = None, **others: Any) -> dict[str, Any]:
    return {KEY: RolloutCommand(number=1, next=NEW, good=good, turn=turn, **others).document(), "clock": 1}


def agent(engine: EngineDouble | None = None, *, drain_s: float = 60.0) -> ReplicaAgent:
    """An agent of a replica that already serves."""
    found = ReplicaAgent(engine or EngineDouble(), replica_id=ME, drain_s=drain_s)
    found.check_health()
    return found


@asynccontextmanager
async def with_request(found: ReplicaAgent) -> AsyncIterator[asyncio.Event]:
    """Keep a request in progress until the event is set."""
    end, begun = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        async with found.request_in_progress():
            begun.set()
            await end.wait()

    task = asyncio.create_task(work())
    await begun.wait()
    yield end
    end.set()
    await task


async def changed(found: ReplicaAgent) -> dict[str, Any]:
    """The status after the change."""
    async with asyncio.timeout(30):
        while found.status()["changing"]:
            await asyncio.sleep(0)
    return found.status()


async def test_status_reports_the_config_and_the_loaded_map() -> None:
    found = agent()
    await found.receive(config(turn="another"))
    status_now = found.status()
    assert (status_now["stamp"], status_now["number"]) == (stamp_of(config(turn="another")), 1)
    assert (status_now["loaded"], status_now["changing"], status_now["refusals"]) == (None, False, {})
    assert status_now["shape"]["engine"] == "vllm"


async def test_a_replica_drains_in_its_turn_until_the_engine_serves_with_the_map() -> None:
    engine = EngineDouble()
    engine.gate = asyncio.Event()
    found = agent(engine)
    await found.receive(config())
    assert found.draining
    assert found.status()["changing"]
    engine.gate.set()
    status_now = await changed(found)
    assert (status_now["loaded"], status_now["placement_id"]) == (NEW.digest, "new")
    assert not found.draining


async def test_requests_in_progress_end_before_the_engine_stops() -> None:
    engine = EngineDouble()
    found = agent(engine)
    async with with_request(found) as end:
        await found.receive(config())
        for _ in range(10):
            await asyncio.sleep(0)
        assert (found.draining, engine.loads) == (True, [])
        end.set()
    assert (await changed(found))["loaded"] == NEW.digest


async def test_requests_that_do_not_end_are_not_cut_off() -> None:
    engine = EngineDouble()
    found = agent(engine, drain_s=0.0)
    async with with_request(found):
        await found.receive(config())
        status_now = await changed(found)
        assert status_now["refusals"] == {NEW.digest: "1 requests had not ended after 0 s"}
        assert (found.draining, engine.loads) == (False, [])


async def test_a_live_engine_takes_the_map_while_it_serves() -> None:
    engine = EngineDouble(live=True)
    found = agent(engine)
    async with with_request(found):
        await found.receive(config())
        assert not found.draining
        assert (await changed(found))["loaded"] == NEW.digest


async def test_a_map_that_fails_is_reported_and_the_previous_one_is_loaded_again() -> None:
    engine = EngineDouble()
    found = ReplicaAgent(engine, replica_id=ME)
    await found.receive(config(turn=None, good=OLD))
    engine.fails_load = {NEW.text()}
    await found.receive(config(good=OLD))
    status_now = await changed(found)
    assert (status_now["loaded"], status_now["refusals"]) == (OLD.digest, {NEW.digest: "does not start"})
    assert engine.loads == [OLD.text(), NEW.text(), OLD.text()]
    assert not found.draining
    found.check_health()


async def test_serve_replaces_a_replica_that_cannot_load_the_previous_map_again() -> None:
    engine = EngineDouble()
    engine.fails_load = {NEW.text(), None}
    found = agent(engine)
    await found.receive(config())
    await changed(found)
    with pytest.raises(BrokenError, match="the previous map could not be loaded again: does not start"):
        found.check_health()
    assert found.draining, "a lost engine gets no new requests"


async def test_an_unfit_map_is_refused_before_anything_stops() -> None:
    engine = EngineDouble()
    engine.fails_check = {NEW.text()}
    found = agent(engine)
    await found.receive(config())
    assert found.status()["refusals"] == {NEW.digest: "does not fit"}
    assert (found.draining, engine.loads) == (False, [])


async def test_a_refused_map_is_checked_again_on_the_next_attempt() -> None:
    engine = EngineDouble()
    engine.fails_check = {NEW.text()}
    found = agent(engine)
    await found.receive(config())
    engine.fails_check = set()
    await found.receive(config(attempt=2))
    assert (await changed(found))["loaded"] == NEW.digest


async def test_a_new_replica_starts_with_the_good_map_and_an_old_one_keeps_its_own() -> None:
    engine = EngineDouble()
    new = ReplicaAgent(engine, replica_id=ME)
    await new.receive(config(turn=None, good=OLD))
    assert (new.status()["loaded"], engine.loads) == (OLD.digest, [OLD.text()])
    engine = EngineDouble()
    old = agent(engine)
    await old.receive(config(turn=None, good=OLD))
    assert (old.status()["loaded"], engine.loads) == (None, [])


async def test_a_new_replica_that_cannot_start_with_the_good_map_starts_without_a_map() -> None:
    engine = EngineDouble()
    engine.fails_load = {OLD.text()}
    found = ReplicaAgent(engine, replica_id=ME)
    await found.receive(config(turn=None, good=OLD))
    assert found.status()["loaded"] is None
    assert found.status()["refusals"] == {OLD.digest: "does not start"}


@pytest.mark.parametrize("damaged", [None, 7, [], {}, {"number": 0}, {"number": "1"}], ids=repr)
async def test_a_damaged_order_changes_nothing(damaged: Any) -> None:
    found = agent()
    await found.receive({KEY: damaged})
    assert found.status()["number"] == 0
    assert found.status()["stamp"] == stamp_of({KEY: damaged}), "it was received"
    assert not found.draining


def test_an_order_with_a_wrong_digest_is_refused() -> None:
    command = RolloutCommand(number=1, next=replace(NEW, packed=OLD.packed), good=None)
    with pytest.raises(DamagedError, match="does not match its digest"):
        read_command(command.document())
    whole = RolloutCommand(number=3, next=NEW, good=OLD, attempt=2, refusal="no", turn=ME)
    assert read_command(whole.document()) == whole
    assert whole.goal == OLD


VLLM = '{"experts": 2, "gpus": 1, "physical_to_logical_map": [[0, 1]]}'


async def test_a_live_file_is_checked_by_the_plug_ins_rules_and_replaced_atomically(tmp_path: Path) -> None:
    path = tmp_path / "placement.json"
    engine = LiveFile(path, shape=EngineShape(engine="vllm", layers=1, experts=2, slots=2, gpus=1))
    engine.check(VLLM)
    with pytest.raises(UnusableError, match="1 is in no slot"):
        engine.check(VLLM.replace("[0, 1]", "[0, 0]"))
    await engine.load(VLLM)
    assert path.read_text() == VLLM
    await engine.load(None)
    assert not path.exists()


async def test_loading_restarts_the_engine_and_waits_until_it_is_healthy(tmp_path: Path) -> None:
    path, events, now_s = tmp_path / "map.json", [], [0.0]

    async def restart() -> None:
        events.append(f"restart with {path.read_text()}")

    async def healthy() -> bool:
        events.append("health check")
        return now_s[0] == 2.0

    async def sleep(seconds: float) -> None:
        now_s[0] += seconds

    engine = FileThenRestart(
        path,
        shape=EngineShape(engine="sglang"),
        restart=restart,
        healthy=healthy,
        start_s=5.0,
        steady_s=lambda: now_s[0],
        sleep=sleep,
    )
    await engine.load("{}")
    assert events == ["restart with {}", "health check", "health check", "health check"]
    now_s[0] = 3.0
    with pytest.raises(TimeoutError, match="not healthy within 5 s"):
        await engine.load("{}")


async def test_a_failing_unload_of_the_map_is_tried_once_per_order() -> None:
    engine = EngineDouble(live=True)
    found = agent(engine)
    await found.receive(config())
    assert (await changed(found))["loaded"] == NEW.digest
    engine.fails_load, engine.loads = {None}, []
    back = RolloutCommand(number=2, next=NEW, good=None, turn=ME, refusal="another refuses it")
    await found.receive({KEY: back.document()})
    assert (await changed(found))["loaded"] == NEW.digest
    assert engine.loads == [None, NEW.text()]
    engine.fails_load = set()
    await found.receive({KEY: replace(back, number=3).document()})
    assert (await changed(found))["loaded"] is None
