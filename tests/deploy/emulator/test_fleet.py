"""A fleet of emulated engines: balance, split roles, warm-up, drain, and the account of outcomes."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from pydantic import ValidationError

from deploy.emulator.engine_http import Listener
from deploy.emulator.fleet import Dispatcher, Fleet, FleetSpec, ReplicaState, Scale
from deploy.emulator.fleet_account import Accounted
from deploy.emulator.fleet_server import fleet_app
from deploy.emulator.worker import UnavailableError
from fleet.errors import FleetwrightError, UnknownNameError

pytestmark = pytest.mark.anyio
H100: dict[str, Any] = {"gpu": "H100-SXM"}


@asynccontextmanager
async def running(
    options: dict[str, dict[str, Any]], *, time_scale: float = 200.0, **fields: Any
) -> AsyncIterator[Fleet]:
    """Tests with requests in flight at the same time run at time scale 1, at which this process is fast enough."""
    fleet = Fleet(FleetSpec.model_validate({"options": options, "time_scale": time_scale} | fields))
    fleet.open()
    try:
        yield fleet
    finally:
        await fleet.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


async def send(fleet: Fleet, count: int, *, prompt: int = 100, output: int = 20) -> None:
    source = Accounted(Dispatcher(fleet), fleet.account)
    await asyncio.gather(*(source.complete(prompt_tokens=prompt, output_tokens=output) for _ in range(count)))


def sent(fleet: Fleet) -> Counter[str]:
    totals: Counter[str] = Counter()
    for replica in fleet.replicas():
        totals[replica.option] += replica.sent
    return totals


async def test_requests_are_balanced_by_the_weights_of_the_options() -> None:
    options = {"a": H100 | {"replicas": 2, "weight": 3.0}, "b": H100 | {"replicas": 1}}
    async with running(options, time_scale=1.0) as fleet:
        await send(fleet, 70)
        assert sent(fleet) == {"a": 60, "b": 10}
        assert {replica.sent for replica in fleet.options["a"].replicas} == {30}
        fleet.scale("a", Scale(replicas=2, weight=1.0))
        await send(fleet, 30)
        assert sent(fleet) == {"a": 80, "b": 20}


async def test_a_prefill_replica_reads_the_prompt_and_a_decode_replica_writes_the_response() -> None:
    options = {"p": H100 | {"role": "prefill"}, "d": H100 | {"role": "decode"}, "both": H100 | {"replicas": 0}}
    async with running(options) as fleet:
        dispatcher = Dispatcher(fleet)
        split = await dispatcher.complete(prompt_tokens=2000, output_tokens=30)
        assert sent(fleet) == {"p": 1, "d": 1}
        for option, wanted in (("both", 1), ("p", 0)):
            fleet.scale(option, Scale(replicas=wanted))
        await until(lambda: fleet.options["both"].ready == 1 and not fleet.options["p"].replicas)
        whole = await dispatcher.complete(prompt_tokens=2000, output_tokens=30)
        assert sent(fleet)["both"] == 1
    assert split.generated == whole.generated == 30
    # The prompt is read once; the decode replica computes its last token again.
    assert whole.ttft_s < split.ttft_s < 2 * whole.ttft_s


async def test_a_request_that_a_small_cache_cannot_keep_goes_to_a_large_one() -> None:
    async with running({"l4": {"gpu": "L4", "replicas": 3}, "h100": H100}) as fleet:
        await send(fleet, 4, prompt=30_000)
        assert sent(fleet) == {"l4": 0, "h100": 4}
        assert fleet.account.counts().refused == 0


async def test_a_new_replica_is_ready_after_its_warm_up_in_model_time() -> None:
    async with running({"a": H100 | {"replicas": 0, "warm_up_s": 30.0}}) as fleet:
        began_s = fleet.now_s
        fleet.scale("a", Scale(replicas=1))
        with pytest.raises(UnavailableError, match="is ready"):
            await send(fleet, 1)
        await until(lambda: fleet.options["a"].ready == 1)
        assert fleet.now_s - began_s >= 30
        await send(fleet, 1)
        counts = fleet.account.counts()
        assert (counts.arrived, counts.dropped, counts.finished) == (2, 1, 1)
        assert fleet.replica_s(fleet.options["a"]) == pytest.approx(fleet.now_s - began_s, rel=0.5)


async def test_a_drained_replica_finishes_its_requests_and_gets_no_new_ones() -> None:
    async with running({"a": H100 | {"replicas": 3}}, time_scale=1.0) as fleet:
        sending = asyncio.ensure_future(send(fleet, 12, output=200))
        await until(lambda: all(replica.engine.loop.in_flight == 4 for replica in fleet.replicas()))
        gone = fleet.options["a"].replicas[1:]
        fleet.scale("a", Scale(replicas=1))
        assert {replica.state for replica in gone} == {ReplicaState.DRAINING}
        await send(fleet, 5)
        assert {replica.sent for replica in gone} == {4}
        await sending
        await until(lambda: len(fleet.options["a"].replicas) == 1)
        assert fleet.options["a"].replicas[0].name == "a-0"
        counts = fleet.account.counts()
        assert (counts.finished, counts.dropped) == (17, 0)


async def test_a_starting_replica_is_removed_before_a_ready_one() -> None:
    async with running({"a": H100 | {"replicas": 1, "warm_up_s": 80_000.0}}) as fleet:
        fleet.scale("a", Scale(replicas=3))
        fleet.scale("a", Scale(replicas=1))
        await until(lambda: len(fleet.options["a"].replicas) == 1)
        assert fleet.options["a"].ready == 1


async def test_outcomes_of_requests_are_counted() -> None:
    objectives = {"ttft_s": 10.0, "tpot_s": 1e-6}
    async with running({"a": {"gpu": "L4"}}, objectives=objectives, time_scale=20.0) as fleet:
        source = Accounted(Dispatcher(fleet), fleet.account)
        await send(fleet, 3)
        async with aclosing(source.tokens(prompt_tokens=10, output_tokens=1000)) as tokens:
            async for _ in tokens:
                break
        leaving = asyncio.ensure_future(source.complete(prompt_tokens=10, output_tokens=100_000))
        with pytest.raises(FleetwrightError, match="in this cache"):
            await leaving
        running_on = asyncio.ensure_future(source.complete(prompt_tokens=10, output_tokens=9000))
        await until(lambda: any(replica.engine.loop.in_flight for replica in fleet.replicas()))
        await fleet.restart("a-0")
        with pytest.raises(UnavailableError, match="stopped"):
            await running_on
        counts = fleet.account.counts()
    assert (counts.arrived, counts.finished, counts.withdrawn, counts.refused, counts.dropped) == (6, 3, 1, 1, 1)
    assert (counts.within_ttft, counts.within_tpot, counts.within_objectives) == (3, 0, 0)
    assert (counts.prompt_tokens, counts.output_tokens) == (300, 60)


@asynccontextmanager
async def controlled(fleet: Fleet) -> AsyncIterator[httpx.AsyncClient]:
    listener = Listener(fleet_app(fleet))
    listener.open()
    async with httpx.AsyncClient(base_url=listener.url, trust_env=False, timeout=60) as client:
        yield client
    await listener.close()


async def test_the_address_of_a_fleet_answers_requests_and_lists_its_replicas() -> None:
    options = {"a": H100 | {"replicas": 2}, "b": {"gpu": "L4", "engine": "sglang", "engine_version": "0.5.9"}}
    async with running(options) as fleet, controlled(fleet) as client:
        body = {"messages": [{"role": "user", "content": "x" * 400}], "max_tokens": 7, "stream": True}
        response = await client.post("/v1/chat/completions", json=body)
        assert (response.status_code, response.text.count('"finish_reason": null')) == (200, 6)
        targets = (await client.get("/fleet/targets")).json()
        assert [target["labels"] for target in targets] == [
            {"pod": "a-0", "option": "a"},
            {"pod": "a-1", "option": "a"},
            {"pod": "b-0", "option": "b"},
        ]
        pages = [(await client.get(f"http://{target['targets'][0]}/metrics")).text for target in targets]
        names = [{family.name.partition(":")[0] for family in text_string_to_metric_families(page)} for page in pages]
        assert names == [{"vllm"}, {"vllm"}, {"sglang"}]
        direct = f"http://{targets[1]['targets'][0]}"
        assert (await client.get(f"{direct}/health")).status_code == 200
        assert (await client.post(f"{direct}/v1/completions", json={"prompt": "x", "max_tokens": 2})).status_code == 200
        assert (await client.get("/fleet/counts")).json()["requests"]["finished"] == 2


async def test_the_control_address_refuses_what_it_does_not_know() -> None:
    async with running({"a": H100}) as fleet, controlled(fleet) as client:
        assert (await client.put("/fleet/options/b", json={"replicas": 1})).status_code == 404
        assert (await client.put("/fleet/options/a", json={"replicas": -1})).status_code == 422
        refused = await client.put("/fleet/options/a", json={"replicas": 1, "engine_version": "9"})
        assert (refused.status_code, fleet.options["a"].spec.engine_version) == (422, None)
        assert "allowed: 0.10" in refused.json()["detail"]
        assert (await client.post("/fleet/replicas/a-9/restart")).status_code == 404
        with pytest.raises(UnknownNameError, match="unknown option 'b'"):
            fleet.scale("b", Scale(replicas=1))
        fleet.scale("a", Scale(replicas=0))
        await until(lambda: not fleet.options["a"].replicas)
        response = await client.post("/v1/completions", json={"prompt": "x"})
        assert (response.status_code, fleet.account.counts().dropped) == (503, 1)


async def test_a_process_that_starts_with_another_version_has_other_names_of_metrics() -> None:
    async with running({"a": H100 | {"engine_version": "0.10"}}) as fleet, controlled(fleet) as client:
        pages = []
        for version in (None, "0.26"):
            fleet.scale("a", Scale(replicas=1, engine_version=version))
            if version is not None:
                await fleet.restart("a-0")
                await until(lambda: fleet.options["a"].ready == 1)
            target = (await client.get("/fleet/targets")).json()[0]["targets"][0]
            pages.append((await client.get(f"http://{target}/metrics")).text)
    old, new = ("vllm:time_per_output_token_seconds_count{", "vllm:inter_token_latency_seconds_count{")
    assert [(old in page, new in page) for page in pages] == [(True, False), (False, True)]


def test_an_unknown_version_of_an_engine_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"allowed: 0\.10"):
        FleetSpec.model_validate({"options": {"a": H100 | {"engine_version": "0.5"}}})
