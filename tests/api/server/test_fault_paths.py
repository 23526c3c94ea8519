"""Fault paths over HTTP: the command line's result, for the request's topology or the stored one, within limits."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from api.cli.app import app
from api.schemas.fault_paths import PathsResponse
from tests.testbed.fault_paths import two_rings
from tests.testbed.service import RunningService

pytestmark = pytest.mark.anyio
PATHS = "/v1/faults/paths"
JOB = two_rings()["job"]


async def test_the_plan_assigns_one_ring_to_each_cable(sqlite_service: RunningService) -> None:
    async with sqlite_service.client() as client:
        done = await client.post(PATHS, json=two_rings(choices=True))
    assert done.status_code == 200, done.text
    answer = PathsResponse.model_validate_json(done.content)
    assert (answer.flows, answer.connections, answer.fractional_optimum) == (4, 4, 1.0)
    assert (answer.planned.greatest, answer.planned.slowest_ring) == (1.0, 1.0)
    assert (answer.hashed.worst, answer.hashed.slowest_ring_worst) == (2.0, 0.5)  # both rings on one cable
    assert answer.choices is not None
    upwards = [row.path for row in answer.choices if row.source.startswith("n0")]
    assert sorted(upwards) == ["leaf-0/spine-0#0/leaf-1#0", "leaf-0/spine-1#0/leaf-1#0"]


async def test_the_result_equals_that_of_the_command_line(sqlite_service: RunningService, tmp_path: Path) -> None:
    body = two_rings(draws=20, seed=3)
    files = [tmp_path / "topology.json", tmp_path / "job.json"]
    for file, key in zip(files, ("topology", "job"), strict=True):
        file.write_text(json.dumps(body[key]))
    options = ["--draws", "20", "--seed", "3", "--format", "json"]
    printed = CliRunner().invoke(app, ["faults", "paths", *map(str, files), *options])
    async with sqlite_service.client() as client:
        answer = (await client.post(PATHS, json=body)).json()
    assert json.loads(printed.stdout) == {name: value for name, value in answer.items() if value is not None}


async def test_a_request_without_a_topology_uses_the_stored_one(sqlite_service: RunningService) -> None:
    body = two_rings()
    async with sqlite_service.client() as client:
        unknown = await client.post(PATHS, json={"job": JOB})
        await client.put("/v1/topology", json=body["topology"], headers={"If-Match": "*"})
        found = await client.post(PATHS, json={"job": JOB})
        assert found.json() == (await client.post(PATHS, json=body)).json()
    assert unknown.status_code == 422
    assert unknown.json()["errors"][0]["path"] == "job.rings"


@pytest.mark.parametrize(
    ("changes", "path", "fragment"),
    [
        ({"job": JOB | {"rings": []}}, "job.rings", "at least one ring or group"),
        ({"job": JOB | {"rings": [{"name": "r", "members": ["n00", "n99"]}]}}, "job.rings", "no node 'n99'"),
        ({"job": JOB | {"dead": [{"lower": "leaf-0", "upper": "core-9"}]}}, "job.dead[0]", "no switch 'core-9'"),
        (
            {"job": JOB | {"dead": [{"lower": "leaf-0", "upper": f"spine-{spine}"} for spine in (0, 1)]}},
            "job.dead",
            "there is no live path",
        ),
        (
            {"job": {"name": "j", "groups": [{"name": "g", "nodes": ["n[0000-4095]"]}], "connections": 5}},
            "job",
            "the limit here is 16,384",
        ),
        ({"draws": 1000, "job": JOB | {"groups": [{"name": "g", "nodes": ["n[0000-1999]"]}]}}, "draws", "at most 817"),
        ({"draws": 0}, "draws", "greater than or equal to 1"),
        ({"paths": 1}, "paths", "not a known field"),
    ],
)
async def test_an_invalid_request_is_refused_by_field(
    sqlite_service: RunningService, changes: dict[str, Any], path: str, fragment: str
) -> None:
    async with sqlite_service.client() as client:
        refused = await client.post(PATHS, json=two_rings(**changes))
    assert refused.status_code == 422, refused.text
    error = refused.json()["errors"][0]
    assert error["path"] == path
    assert fragment in error["message"]


async def test_a_fabric_with_too_many_cables_is_refused(sqlite_service: RunningService) -> None:
    body = two_rings()
    network = body["topology"]["sites"][0]["network"]
    network[0] |= {"name": "leaf-[0-1023]", "uplinks": ["spine-[0-7]"], "links_per_uplink": 256}
    network[1] |= {"name": "spine-[0-7]"}
    async with sqlite_service.client() as client:
        refused = await client.post(PATHS, json=body)
    error = refused.json()["errors"][0]
    assert (refused.status_code, error["path"], "2,097,152 cables" in error["message"]) == (422, "topology", True)
