"""The expert rollout through the controller: its reads, writes and reports."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic import ValidationError

from api.schemas.expert_maps import ExpertMapPhase, ExpertMapStatus
from api.schemas.targets import Mode, Phase, RayServeApplication, TargetSpec
from deploy.controller.reconcile import ControllerSettings
from fleetwright.expert_rollout.messages import KEY
from placement.formats import Engine
from placement.request import PlacementRequest
from tests.deploy.controller.harness import WORKLOAD, Harness, harness_of
from tests.deploy.expert_rollout.served import DASHBOARD, INGRESS, Served
from tests.testbed.service import RunningService

pytestmark = pytest.mark.anyio

H100, L4 = "H100-SXM", "L4"
DEPLOYMENTS = {H100: "on_h100", L4: "on_l4"}
NOWHERE = "00000000-0000-7000-8000-000000000000"
REQUEST = PlacementRequest(loads=((4.0, 2.0, 1.0, 1.0), (1.0, 1.0, 1.0, 5.0)), slots=6, gpus=2, nodes=1)


@pytest.fixture
async def harness(sqlite_service: RunningService) -> AsyncIterator[Harness]:
    async with harness_of(sqlite_service) as harness:
        yield harness


async def placement(harness: Harness, **changes: Any) -> str:
    return (await harness.api.create_placement(REQUEST.model_copy(update=changes))).id


def order(placement_id: str, **others: Any) -> dict[str, Any]:
    return {
        "placement_id": placement_id,
        "engine": "vllm",
        "replicas_url": f"http://{INGRESS}/fleetwright/expert-maps",
    } | others


async def register(harness: Harness, expert_maps: dict[str, Any], **spec: Any) -> None:
    deployments = {gpu: DEPLOYMENTS[gpu] for gpu in expert_maps}
    described = {"dashboard_url": f"http://{DASHBOARD}:8265", "application": "chat", "deployments": deployments}
    application = RayServeApplication.model_validate(described)
    await harness.register_real("chat", application, expert_maps=expert_maps, **spec)


async def one_round(harness: Harness, served: Served, **settings: Any) -> ExpertMapStatus:
    """One round of a controller without state, with its orders delivered."""
    await harness.round(harness.controller(http=served.http, settings=ControllerSettings(**settings)))
    await served.settle()
    return (await harness.status("chat")).expert_maps[H100]


async def rounds(harness: Harness, served: Served, phase: ExpertMapPhase) -> list[ExpertMapStatus]:
    seen = [await one_round(harness, served)]
    while seen[-1].phase is not phase:
        assert len(seen) < 50, seen[-1]
        seen.append(await one_round(harness, served))
    return seen


async def test_a_map_is_brought_to_every_replica_and_told(harness: Harness) -> None:
    served = await Served.of(on_h100=4)
    group = served.rows["on_h100"]
    group.config = {"clock": 3}
    await register(harness, {H100: order(await placement(harness))})
    seen = await rounds(harness, served, ExpertMapPhase.LOADED)
    assert [status.loaded for status in seen] == sorted(status.loaded for status in seen)
    assert (seen[-1].replicas, seen[-1].loaded, seen[-1].waiting, seen[-1].refused) == (4, 4, 0, 0)
    assert (group.most_out, group.loads) == (1, 4)
    assert group.config["clock"] == 3
    status = await harness.status("chat")
    assert (status.phase, status.message) == (Phase.OBSERVED, None), "a target without a plan is only observed"
    puts = served.puts
    await one_round(harness, served)
    assert served.puts == puts, "nothing is written where nothing differs"
    assert harness.counted("fleetwright_controller_writes_total", target="chat", kind="expert_map") is None


@pytest.mark.parametrize(
    ("spec", "settings", "phase"),
    [
        ({"mode": Mode.OBSERVE}, {}, Phase.OBSERVED),
        ({"mode": Mode.RECOMMEND}, {}, Phase.RECOMMENDED),
        ({"require_approval": True}, {}, Phase.AWAITING_APPROVAL),
        ({}, {"observe_only": True}, Phase.OBSERVED),
    ],
    ids=["observe", "recommend", "approval", "observe-only"],
)
async def test_where_it_may_not_write_it_says_what_it_would(
    harness: Harness, spec: dict[str, Any], settings: dict[str, Any], phase: Phase
) -> None:
    served = await Served.of(on_h100=2)
    await register(harness, {H100: order(await placement(harness))}, **spec)
    await one_round(harness, served, **settings)
    status = await one_round(harness, served, **settings)
    assert (status.phase, status.loaded, status.waiting) == (ExpertMapPhase.WANTED, 0, 2)
    assert (await harness.status("chat")).phase is phase
    assert served.puts == 0


async def test_an_operator_approves_a_map_once_for_the_whole_of_its_roll(harness: Harness) -> None:
    served = await Served.of(on_h100=3)
    first = order(await placement(harness))
    await register(harness, {H100: first}, require_approval=True)
    await one_round(harness, served)
    waiting = await harness.status("chat")
    assert waiting.phase is Phase.AWAITING_APPROVAL
    assert (await harness.approve("chat")).digest == waiting.digest
    await rounds(harness, served, ExpertMapPhase.LOADED)
    done = await harness.status("chat")
    assert (done.phase, done.digest) == (Phase.OBSERVED, None)
    puts = served.puts

    await harness.change("chat", expert_maps={H100: first | {"attempt": 2}})
    await one_round(harness, served)
    await one_round(harness, served)
    again = await harness.status("chat")
    assert again.phase is Phase.AWAITING_APPROVAL, "another map needs another approval"
    assert again.digest not in {None, waiting.digest}
    assert served.puts == puts

    await harness.change("chat", expert_maps={H100: first | {"attempt": 3}})
    await harness.change("chat", expert_maps={H100: first | {"attempt": 2}})
    await one_round(harness, served)
    assert (await harness.status("chat")).digest not in {None, again.digest}, "a restored target needs another approval"


async def test_a_freeze_holds_a_roll_where_it_is(harness: Harness) -> None:
    served = await Served.of(on_h100=3)
    await register(harness, {H100: order(await placement(harness))})
    while (await one_round(harness, served)).loaded < 1:
        pass
    await harness.freeze(frozen=True)
    puts = served.puts
    await one_round(harness, served)
    await one_round(harness, served)
    assert (await harness.status("chat")).phase is Phase.FROZEN
    assert served.puts == puts
    await harness.freeze(frozen=False)
    await rounds(harness, served, ExpertMapPhase.LOADED)


async def test_a_map_of_another_size_is_refused_before_anything_is_written(harness: Harness) -> None:
    served = await Served.of(on_h100=2)
    for replica in served.rows["on_h100"].replicas.values():
        replica.engine.shape = type(replica.engine.shape)(engine="vllm", version="0.33", slots=8, experts=4)
    await register(harness, {H100: order(wanted := await placement(harness))})
    status = await one_round(harness, served)
    assert status.phase is ExpertMapPhase.REFUSED
    assert status.message == f"placement {wanted} is for slots 6, but r001 (vllm 0.33) has 8"
    assert (await harness.status("chat")).phase is Phase.FAILED
    assert served.orders == {"on_h100": None}


async def test_an_engine_of_another_kind_and_a_placement_that_is_not_there_are_refused(harness: Harness) -> None:
    served = await Served.of(on_h100=2)
    await register(harness, {H100: order(await placement(harness), engine="sglang")})
    assert "is for engine sglang, but r001 (vllm) has vllm" in ((await one_round(harness, served)).message or "")
    await harness.change("chat", expert_maps={H100: order(NOWHERE)})
    assert (await one_round(harness, served)).message == f"placement {NOWHERE!r} does not exist"
    assert served.puts == 0


async def test_a_placement_that_the_engine_cannot_load_is_refused(harness: Harness) -> None:
    served = await Served.of(on_h100=2)
    await register(harness, {H100: order(await placement(harness, gpu_slots=(4, 2)))})
    assert "must be equal on every GPU for vllm" in ((await one_round(harness, served)).message or "")
    assert served.puts == 0


async def test_a_map_that_fails_in_an_engine_is_rolled_back_and_can_be_retried(harness: Harness) -> None:
    served = await Served.of(on_h100=3)
    group = served.rows["on_h100"]
    first, second = (
        await placement(harness),
        await placement(harness, loads=((1.0, 9.0, 1.0, 1.0), (1.0, 1.0, 1.0, 5.0))),
    )
    await register(harness, {H100: order(first)})
    await rounds(harness, served, ExpertMapPhase.LOADED)
    bad = (await harness.api.export_placement(second, engine=Engine.VLLM)).decode()
    group.replicas["r002"].engine.fails_load = {bad}
    await harness.change("chat", expert_maps={H100: order(second)})
    status = (await rounds(harness, served, ExpertMapPhase.REFUSED))[-1]
    assert status.message == "r002 refuses it: does not start"
    assert (group.loaded, group.most_out) == ({first}, 1)
    group.replicas["r002"].engine.fails_load = set()
    puts = served.puts
    await one_round(harness, served)
    assert served.puts == puts, "what was refused stays refused"
    await harness.change("chat", expert_maps={H100: order(second, attempt=2)})
    await rounds(harness, served, ExpertMapPhase.LOADED)
    assert group.loaded == {second}


async def test_deployments_follow_one_another(harness: Harness) -> None:
    served = await Served.of(on_h100=2, on_l4=2)
    wanted = await placement(harness)
    await register(harness, {H100: order(wanted), L4: order(wanted)})
    first, second = served.rows.values()
    while second.loaded != {wanted}:
        await one_round(harness, served)
        assert second.loads == 0 or first.loaded == {wanted}
    assert (first.loads, second.loads) == (2, 2)


async def test_maps_wait_for_replica_counts(harness: Harness) -> None:
    served = await Served.of(on_h100=2)
    await register(harness, {H100: order(await placement(harness))}, plan_id=await harness.plan({H100: 3}))
    await harness.round(harness.controller(http=served.http))
    status = await harness.status("chat")
    assert (status.phase, status.expert_maps) == (Phase.APPLYING, {})
    assert (served.scaled, served.puts) == ([("on_h100", 3)], 0)


@pytest.mark.parametrize("answer", [404, 503, 504])
async def test_an_ingress_that_does_not_tell_is_named_and_nothing_is_written(harness: Harness, answer: int) -> None:
    served = await Served.of(on_h100=2)
    served.ingress_answers = answer
    await register(harness, {H100: order(await placement(harness))})
    await harness.round(harness.controller(http=served.http))
    status = await harness.status("chat")
    assert status.phase is Phase.FAILED
    assert f"http://{INGRESS}/fleetwright/expert-maps answered {answer}" in (status.message or "")
    assert served.puts == 0


async def test_replicas_that_do_not_say_are_waited_for(harness: Harness) -> None:
    served = await Served.of(on_h100=2)
    group = served.rows["on_h100"]
    await register(harness, {H100: order(await placement(harness))})
    listed = dict(group.replicas)
    silent = group.replicas.pop("r002")
    group.requested = 1
    details = served._details
    served._details = lambda: _with_replica(details(), "r002")  # type: ignore[method-assign]
    status = await one_round(harness, served)
    assert status.phase is ExpertMapPhase.WAITING
    assert status.message == "1 of 2 replicas do not report, r002 among them"
    assert (served.puts, silent) == (0, listed["r002"])


def _with_replica(details: dict[str, Any], name: str) -> dict[str, Any]:
    deployment = details["applications"]["chat"]["deployments"]["on_h100"]
    deployment["replicas"].append({"replica_id": name, "state": "RUNNING"})
    deployment["target_num_replicas"] += 1
    return details


@pytest.mark.parametrize(
    ("application", "maps"),
    [
        ({"dashboard_url": "http://x", "application": "chat", "deployments": {H100: "on-h100"}}, {L4: order(NOWHERE)}),
        ({"kind": "ray_cluster", "namespace": "n", "cluster": "c", "groups": {H100: "g"}}, {H100: order(NOWHERE)}),
    ],
    ids=["another GPU", "another kind"],
)
def test_maps_are_for_deployments_of_a_serve_application(application: dict[str, Any], maps: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="expert_maps"):
        TargetSpec.model_validate({"workload": WORKLOAD, "application": application, "expert_maps": maps})


def test_the_key_is_the_one_that_replicas_look_for() -> None:
    assert KEY == "expert_map"
