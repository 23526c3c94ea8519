"""The expert rollout through the controller: its reads, writes and reports."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic import ValidationError

from api.schemas.applications import RayServeApplication
from api.schemas.expert_maps import ExpertMapPhase, ExpertMapStatus
from api.schemas.targets import Mode, Phase, TargetSpec
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
MISSING_ID = "00000000-0000-7000-8000-000000000000"
REQUEST = PlacementRequest(loads=((4.0, 2.0, 1.0, 1.0), (1.0, 1.0, 1.0, 5.0)), slots=6, gpus=2, nodes=1)


@pytest.fixture
async def harness(sqlite_service: RunningService) -> AsyncIterator[Harness]:
    async with harness_of(sqlite_service) as harness:
        yield harness


async def placement(harness: Harness, **changes: Any) -> str:
    return (await harness.api.create_placement(REQUEST.model_copy(update=changes))).id


def expert_map(placement_id: str, **others: Any) -> dict[str, Any]:
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


async def reconcile_once(harness: Harness, served: Served, **settings: Any) -> ExpertMapStatus:
    """One reconcile of a controller without state, with its commands delivered."""
    await harness.round(harness.controller(http=served.http, settings=ControllerSettings(**settings)))
    await served.settle()
    return (await harness.status("chat")).expert_maps[H100]


async def reconcile_until(harness: Harness, served: Served, phase: ExpertMapPhase) -> list[ExpertMapStatus]:
    statuses = [await reconcile_once(harness, served)]
    while statuses[-1].phase is not phase:
        assert len(statuses) < 50, statuses[-1]
        statuses.append(await reconcile_once(harness, served))
    return statuses


async def test_a_map_is_loaded_by_every_replica_and_reported(harness: Harness) -> None:
    served = await Served.of(on_h100=4)
    group = served.rows["on_h100"]
    group.config = {"clock": 3}
    await register(harness, {H100: expert_map(await placement(harness))})
    statuses = await reconcile_until(harness, served, ExpertMapPhase.LOADED)
    assert [status.loaded for status in statuses] == sorted(status.loaded for status in statuses)
    assert (statuses[-1].replicas, statuses[-1].loaded, statuses[-1].waiting, statuses[-1].refused) == (4, 4, 0, 0)
    assert (group.max_out, group.loads) == (1, 4)
    assert group.config["clock"] == 3
    status = await harness.status("chat")
    assert (status.phase, status.message) == (Phase.OBSERVED, None), "a target without a plan is only observed"
    puts = served.puts
    await reconcile_once(harness, served)
    assert served.puts == puts, "nothing is written without a difference"
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
async def test_without_permission_to_write_the_wanted_map_is_reported(
    harness: Harness, spec: dict[str, Any], settings: dict[str, Any], phase: Phase
) -> None:
    served = await Served.of(on_h100=2)
    await register(harness, {H100: expert_map(await placement(harness))}, **spec)
    await reconcile_once(harness, served, **settings)
    status = await reconcile_once(harness, served, **settings)
    assert (status.phase, status.loaded, status.waiting) == (ExpertMapPhase.WANTED, 0, 2)
    assert (await harness.status("chat")).phase is phase
    assert served.puts == 0


async def test_one_approval_covers_the_whole_rollout_of_a_map(harness: Harness) -> None:
    served = await Served.of(on_h100=3)
    first = expert_map(await placement(harness))
    await register(harness, {H100: first}, require_approval=True)
    await reconcile_once(harness, served)
    waiting = await harness.status("chat")
    assert waiting.phase is Phase.AWAITING_APPROVAL
    assert (await harness.approve("chat")).digest == waiting.digest
    await reconcile_until(harness, served, ExpertMapPhase.LOADED)
    done = await harness.status("chat")
    assert (done.phase, done.digest) == (Phase.OBSERVED, None)
    puts = served.puts

    await harness.change("chat", expert_maps={H100: first | {"attempt": 2}})
    await reconcile_once(harness, served)
    await reconcile_once(harness, served)
    again = await harness.status("chat")
    assert again.phase is Phase.AWAITING_APPROVAL, "another map needs another approval"
    assert again.digest not in {None, waiting.digest}
    assert served.puts == puts

    await harness.change("chat", expert_maps={H100: first | {"attempt": 3}})
    await harness.change("chat", expert_maps={H100: first | {"attempt": 2}})
    await reconcile_once(harness, served)
    assert (await harness.status("chat")).digest not in {None, again.digest}, "a restored target needs another approval"


async def test_a_freeze_pauses_a_rollout(harness: Harness) -> None:
    served = await Served.of(on_h100=3)
    await register(harness, {H100: expert_map(await placement(harness))})
    while (await reconcile_once(harness, served)).loaded < 1:
        pass
    await harness.freeze(frozen=True)
    puts = served.puts
    await reconcile_once(harness, served)
    await reconcile_once(harness, served)
    assert (await harness.status("chat")).phase is Phase.FROZEN
    assert served.puts == puts
    await harness.freeze(frozen=False)
    await reconcile_until(harness, served, ExpertMapPhase.LOADED)


async def test_a_map_of_the_wrong_size_is_refused_before_any_write(harness: Harness) -> None:
    served = await Served.of(on_h100=2)
    for replica in served.rows["on_h100"].replicas.values():
        replica.engine.shape = type(replica.engine.shape)(engine="vllm", version="0.33", slots=8, experts=4)
    await register(harness, {H100: expert_map(wanted := await placement(harness))})
    status = await reconcile_once(harness, served)
    assert status.phase is ExpertMapPhase.REFUSED
    assert status.message == f"placement {wanted} is for slots 6, but r001 (vllm 0.33) has 8"
    assert (await harness.status("chat")).phase is Phase.FAILED
    assert served.commands == {"on_h100": None}


async def test_a_wrong_engine_and_a_missing_placement_are_refused(harness: Harness) -> None:
    served = await Served.of(on_h100=2)
    await register(harness, {H100: expert_map(await placement(harness), engine="sglang")})
    assert "is for engine sglang, but r001 (vllm) has vllm" in ((await reconcile_once(harness, served)).message or "")
    await harness.change("chat", expert_maps={H100: expert_map(MISSING_ID)})
    assert (await reconcile_once(harness, served)).message == f"placement {MISSING_ID!r} does not exist"
    assert served.puts == 0


async def test_a_placement_that_the_engine_cannot_load_is_refused(harness: Harness) -> None:
    served = await Served.of(on_h100=2)
    await register(harness, {H100: expert_map(await placement(harness, gpu_slots=(4, 2)))})
    assert "must be equal on every GPU for vllm" in ((await reconcile_once(harness, served)).message or "")
    assert served.puts == 0


async def test_a_map_that_fails_in_an_engine_is_rolled_back_and_can_be_retried(harness: Harness) -> None:
    served = await Served.of(on_h100=3)
    group = served.rows["on_h100"]
    first, second = (
        await placement(harness),
        await placement(harness, loads=((1.0, 9.0, 1.0, 1.0), (1.0, 1.0, 1.0, 5.0))),
    )
    await register(harness, {H100: expert_map(first)})
    await reconcile_until(harness, served, ExpertMapPhase.LOADED)
    bad = (await harness.api.export_placement(second, engine=Engine.VLLM)).decode()
    group.replicas["r002"].engine.fails_load = {bad}
    await harness.change("chat", expert_maps={H100: expert_map(second)})
    status = (await reconcile_until(harness, served, ExpertMapPhase.REFUSED))[-1]
    assert status.message == "r002 refuses it: does not start"
    assert (group.loaded, group.max_out) == ({first}, 1)
    group.replicas["r002"].engine.fails_load = set()
    puts = served.puts
    await reconcile_once(harness, served)
    assert served.puts == puts, "a refused map stays refused"
    await harness.change("chat", expert_maps={H100: expert_map(second, attempt=2)})
    await reconcile_until(harness, served, ExpertMapPhase.LOADED)
    assert group.loaded == {second}


async def test_deployments_are_rolled_out_one_after_the_other(harness: Harness) -> None:
    served = await Served.of(on_h100=2, on_l4=2)
    wanted = await placement(harness)
    await register(harness, {H100: expert_map(wanted), L4: expert_map(wanted)})
    first, second = served.rows.values()
    while second.loaded != {wanted}:
        await reconcile_once(harness, served)
        assert second.loads == 0 or first.loaded == {wanted}
    assert (first.loads, second.loads) == (2, 2)


async def test_expert_maps_wait_for_the_planned_replica_counts(harness: Harness) -> None:
    served = await Served.of(on_h100=2)
    await register(harness, {H100: expert_map(await placement(harness))}, plan_id=await harness.plan({H100: 3}))
    await harness.round(harness.controller(http=served.http))
    status = await harness.status("chat")
    assert (status.phase, status.expert_maps) == (Phase.APPLYING, {})
    assert (served.scaled, served.puts) == ([("on_h100", 3)], 0)


@pytest.mark.parametrize("answer", [404, 503, 504])
async def test_a_failing_ingress_is_reported_and_nothing_is_written(harness: Harness, answer: int) -> None:
    served = await Served.of(on_h100=2)
    served.ingress_answers = answer
    await register(harness, {H100: expert_map(await placement(harness))})
    await harness.round(harness.controller(http=served.http))
    status = await harness.status("chat")
    assert status.phase is Phase.FAILED
    assert f"http://{INGRESS}/fleetwright/expert-maps returned {answer}" in (status.message or "")
    assert served.puts == 0


async def test_the_rollout_waits_for_replicas_without_a_status(harness: Harness) -> None:
    served = await Served.of(on_h100=2)
    group = served.rows["on_h100"]
    await register(harness, {H100: expert_map(await placement(harness))})
    listed = dict(group.replicas)
    silent = group.replicas.pop("r002")
    group.requested = 1
    details = served._details
    served._details = lambda: _with_replica(details(), "r002")  # type: ignore[method-assign]
    status = await reconcile_once(harness, served)
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
        (
            {"dashboard_url": "http://x", "application": "chat", "deployments": {H100: "on-h100"}},
            {L4: expert_map(MISSING_ID)},
        ),
        (
            {"kind": "ray_cluster", "namespace": "n", "cluster": "c", "groups": {H100: "g"}},
            {H100: expert_map(MISSING_ID)},
        ),
    ],
    ids=["another GPU", "another kind"],
)
def test_expert_maps_require_deployments_of_a_serve_application(
    application: dict[str, Any], maps: dict[str, Any]
) -> None:
    with pytest.raises(ValidationError, match="expert_maps"):
        TargetSpec.model_validate({"workload": WORKLOAD, "application": application, "expert_maps": maps})


def test_the_config_key_matches_the_key_that_replicas_read() -> None:
    assert KEY == "expert_map"
