"""Rolls an expert map out over four replicas of a running Serve application under load, and refuses invalid ones.

Real replicas run behind the real router, and the controller uses Serve's REST interface.  A replica's engine stops for
its new map and restarts only after its siblings have responded instead.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.schemas.applications import RayServeApplication
from api.schemas.expert_maps import ExpertMapPhase
from api.schemas.targets import Phase, TargetStatus
from deploy.router.settings import SERVE_NAME, RouterConfig
from deploy.router.table import CellWeights, Route, RoutingTable
from placement.formats import Engine
from placement.request import PlacementRequest
from tests.deploy.controller.harness import Harness, harness_of
from tests.testbed.chat_load import ChatLoad, calling
from tests.testbed.processes import LOOPBACK
from tests.testbed.ray_cluster import RayCluster
from tests.testbed.ray_serve import APPLICATIONS, declared_applications
from tests.testbed.service import RunningService
from tests.testbed.waiting import PATIENCE_S

pytestmark = [pytest.mark.ray, pytest.mark.anyio]

H100, ENGINES, REPLICAS, TOKENS = "H100-SXM", "on-h100", 4, 8
GOOD = PlacementRequest(loads=((4.0, 2.0, 1.0, 1.0), (1.0, 1.0, 1.0, 5.0)), slots=6, gpus=2, nodes=1)
ANOTHER = GOOD.model_copy(update={"loads": ((1.0, 2.0, 1.0, 4.0), (5.0, 1.0, 1.0, 1.0))})
OF_OTHER_SIZE = GOOD.model_copy(update={"slots": 8})
SHAPE = {"engine": "vllm", "layers": 2, "experts": 4, "slots": 6, "gpus": 2}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder of the engines' files and of their log of restarts."""
    (tmp_path / "real-shape.json").write_text(json.dumps(SHAPE))
    return tmp_path


@pytest.fixture
def application(ray_cluster: RayCluster, folder: Path) -> Iterator[RayServeApplication]:
    table = RoutingTable(
        version="one",
        input_tokens=(1000,),
        output_tokens=(100,),
        share=((1.0,),),
        routes={ENGINES: Route(replicas=REPLICAS, max_in_flight=100)},
        cells=(CellWeights(row=0, column=0, weights={ENGINES: 1.0}),),
    )
    app = {
        "name": "chat",
        "import_path": "tests.deploy.expert_rollout.serve_engines:build",
        "args": {"engines": {ENGINES: REPLICAS}, "shape": SHAPE, "folder": str(folder)},
        "external_scaler_enabled": True,
        "deployments": [
            {"name": SERVE_NAME, "user_config": RouterConfig(table=table).model_dump(mode="json")},
            {"name": ENGINES, "user_config": {"clock": 3}},
        ],
    }
    described = {"dashboard_url": ray_cluster.dashboard_url, "application": "chat", "deployments": {H100: ENGINES}}
    with declared_applications(ray_cluster, [app]):
        yield RayServeApplication.model_validate(described)


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE_S) as http:
        yield http


@pytest.fixture
async def harness(sqlite_service: RunningService) -> AsyncIterator[Harness]:
    async with harness_of(sqlite_service) as harness:
        yield harness


async def rounds_until(harness: Harness, http: httpx.AsyncClient, phase: ExpertMapPhase) -> list[TargetStatus]:
    """Reconcile with a new controller per round; return every report."""
    statuses: list[TargetStatus] = []
    async with asyncio.timeout(PATIENCE_S):
        while (
            not statuses
            or statuses[-1].expert_maps.get(H100) is None
            or statuses[-1].expert_maps[H100].phase is not phase
        ):
            await harness.round(harness.controller(http=http))
            statuses.append(await harness.status("chat"))
            await asyncio.sleep(0.05)
    return statuses


def restarts(folder: Path) -> list[dict[str, Any]]:
    path = folder / "restarts.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


async def test_a_map_is_rolled_out_to_four_replicas_under_load_and_invalid_maps_reach_none(
    harness: Harness, http: httpx.AsyncClient, application: RayServeApplication, ray_cluster: RayCluster, folder: Path
) -> None:
    """No request fails, one replica at a time is out, and invalid maps are refused before any replica stops."""
    url = f"http://{LOOPBACK}:{ray_cluster.serve_port}"
    wanted = {"engine": "vllm", "replicas_url": f"{url}/fleetwright/expert-maps"}
    good, another, other_size = [
        (await harness.api.create_placement(request)).id for request in (GOOD, ANOTHER, OF_OTHER_SIZE)
    ]
    async with calling(
        ChatLoad(http=http, url=url, tokens=TOKENS, streams=(True,), headers={"x-token-ms": "5"})
    ) as calls:
        await harness.register_real("chat", application, expert_maps={H100: wanted | {"placement_id": good}})
        reports = await rounds_until(harness, http, ExpertMapPhase.LOADED)
        ends = sorted(restarts(folder), key=lambda entry: entry["began_s"])
        assert len({entry["replica"] for entry in ends}) == len(ends) == REPLICAS
        file = await harness.api.export_placement(good, engine=Engine.VLLM)
        assert {entry["file"] for entry in ends} == {file.decode()}
        assert all(before["ended_s"] < after["began_s"] for before, after in pairwise(ends)), "one at a time"
        assert reports[-1].expert_maps[H100].loaded == REPLICAS

        await harness.change("chat", expert_maps={H100: wanted | {"placement_id": other_size}})
        refused = (await rounds_until(harness, http, ExpertMapPhase.REFUSED))[-1]
        assert refused.phase is Phase.FAILED
        assert "is for slots 8, but" in (refused.message or "")

        (folder / "real-shape.json").write_text(json.dumps(SHAPE | {"gpus": 3}))  # differs from the engines' shape
        await harness.change("chat", expert_maps={H100: wanted | {"placement_id": another}})
        refused = (await rounds_until(harness, http, ExpertMapPhase.REFUSED))[-1]
        assert "refuses it: gpus must be 3" in (refused.message or "")
        assert len(restarts(folder)) == REPLICAS, "no replica was touched"
        await calls.some_more()
    assert calls.faults == []
    details = (await http.get(f"{str(application.dashboard_url).rstrip('/')}{APPLICATIONS}")).json()
    entry = details["applications"]["chat"]["deployments"][ENGINES]
    assert entry["deployment_config"]["user_config"]["clock"] == 3, "other files are unchanged"
    assert len(entry["replicas"]) == REPLICAS
