"""Placements over HTTP: created once, stored, audited, and exported in an engine's format."""

import asyncio
import json
from typing import Any

import pytest
import yaml

from api.schemas.placements import PlacementRecord
from api.schemas.tokens import TokenScope
from placement.formats.engine_writers import Engine
from tests.testbed.service import RunningService

pytestmark = pytest.mark.anyio

LOADS = [[9.0, 5.0, 4.0, 3.0, 2.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 2.0, 3.0, 4.0, 5.0, 9.0]]
TRACE = [[[0, 1], [7, 6]], [[0, 2], [7, 5]], [[1, 0], [6, 7]], [[0, 3], [7, 4]]]
UNKNOWN = "01990000-0000-7000-8000-000000000000"


def placement_request(**changes: Any) -> dict[str, Any]:
    return {"loads": LOADS, "slots": 12, "gpus": 4, "nodes": 2} | changes


async def test_a_placement_is_stored_with_its_request_and_audited(service: RunningService) -> None:
    async with service.client(TokenScope.PLAN) as planner, service.client() as admin:
        made = await planner.post("/v1/placements", json=placement_request())
        found = await admin.get(made.headers["location"])
        listed = await admin.get("/v1/placements")
        audit = await admin.get("/v1/audit")
        metrics = await admin.get("/metrics")
    assert made.status_code == 201, made.text
    record = made.json()
    assert found.json() == record
    placement = record["placement"]
    assert (
        placement["bound"]["mean"]
        <= placement["imbalance"]["mean"]
        < placement["predictions"]["before"]["imbalance"]["mean"]
    )
    assert [sorted(set(row)) for row in placement["physical_to_logical_map"]] == [list(range(8))] * 2
    assert placement["moved_copies"] is placement["remote_nodes_per_token"] is None
    assert record["created_by"] == "token:plan"
    (listed_one,) = listed.json()["items"]
    assert (listed_one["id"], listed_one["imbalance"]) == (record["id"], placement["imbalance"]["mean"])
    newest = audit.json()["items"][0]
    assert (newest["action"], newest["subject"]) == ("placement.created", f"placements/{record['id']}")
    assert 'fleetwright_placements_total{outcome="held"} 1.0' in metrics.text.splitlines()


async def test_a_missed_ceiling_is_a_result_and_counted(sqlite_service: RunningService) -> None:
    async with sqlite_service.client() as client:
        made = await client.post("/v1/placements", json=placement_request(slots=8, max_imbalance=1.0))
        metrics = await client.get("/metrics")
    assert (made.status_code, made.json()["placement"]["holds"]) == (201, False)
    assert 'fleetwright_placements_total{outcome="ceiling-missed"} 1.0' in metrics.text.splitlines()


async def test_an_exact_placement_reports_its_method_and_gap(sqlite_service: RunningService) -> None:
    async with sqlite_service.client() as client:
        search = (await client.post("/v1/placements", json=placement_request())).json()["placement"]
        made = await client.post("/v1/placements", json=placement_request(method="exact", time_limit_s=60.0))
        refused = await client.post("/v1/placements", json=placement_request(method="exact", dispatch="nearest"))
        stored = await client.get(made.headers["location"])
    exact = made.json()["placement"]
    assert (search["method"], exact["method"]) == ("search", "exact")
    assert exact["imbalance"]["mean"] <= search["imbalance"]["mean"]
    assert exact["gap"] <= 2e-6
    assert stored.json()["request"]["method"] == "exact"
    assert refused.status_code == 422
    assert "exact must go with dispatch equal or hash" in refused.text


async def test_few_copies_move_from_the_loaded_placement(sqlite_service: RunningService) -> None:
    async with sqlite_service.client() as client:
        first = (await client.post("/v1/placements", json=placement_request())).json()["placement"]
        now = first["physical_to_logical_map"]
        drifted = [[tokens * (1.5 if expert == 0 else 1.0) for expert, tokens in enumerate(row)] for row in LOADS]
        same = (await client.post("/v1/placements", json=placement_request(current=now))).json()["placement"]
        moved = (
            await client.post("/v1/placements", json=placement_request(loads=drifted, current=now, max_moves=2))
        ).json()["placement"]
    assert same["moved_copies"] <= 2
    assert moved["moved_copies"] <= 2
    assert moved["imbalance"]["mean"] <= moved["predictions"]["before"]["imbalance"]["mean"]
    assert moved["predictions"]["before"]["what"] == "current"


async def test_windows_are_summed_and_a_trace_gives_remote_nodes(sqlite_service: RunningService) -> None:
    async with sqlite_service.client() as client:
        halves = placement_request(loads=None, windows=[LOADS, LOADS], trace=TRACE, dispatch="nearest", layers=[1, 2])
        made = await client.post("/v1/placements", json=halves)
    assert made.status_code == 201, made.text
    placement = made.json()["placement"]
    assert placement["loads"] == [[2 * tokens for tokens in row] for row in LOADS]
    assert placement["provenance"]["windows"] == 2
    assert (placement["layers"], placement["hidden_layers"]) == ([1, 2], 3)
    assert placement["remote_nodes"]["source"] == "trace"
    assert 0.0 <= placement["remote_nodes_per_token"] <= 1.0


async def test_a_file_is_exported_for_every_engine(sqlite_service: RunningService) -> None:
    async with sqlite_service.client() as client:
        made = (await client.post("/v1/placements", json=placement_request(layers=[1, 2]))).json()
        where = f"/v1/placements/{made['id']}/export"
        files = {engine: await client.get(where, params={"engine": engine}) for engine in Engine}
        wrong = await client.get(where, params={"engine": "other"})
        missing = await client.get(f"/v1/placements/{UNKNOWN}/export", params={"engine": "sglang"})
    assert {answer.status_code for answer in files.values()} == {200}
    rows = made["placement"]["physical_to_logical_map"]
    assert files[Engine.SGLANG].json().keys() == {"physical_to_logical_map"}
    assert files[Engine.SGLANG].json()["physical_to_logical_map"][1:] == rows
    assert files[Engine.TRTLLM].headers["content-type"] == "application/yaml"
    assert yaml.safe_load(files[Engine.TRTLLM].text)["initial_global_assignments"] == {1: rows[0], 2: rows[1]}
    assert files[Engine.ASCEND].json()["moe_layer_count"] == 2
    assert files[Engine.VLLM].json()["physical_to_logical_map"] == rows
    assert (wrong.status_code, missing.status_code) == (422, 404)


async def test_moves_are_scheduled_for_a_given_bandwidth(sqlite_service: RunningService) -> None:
    loaded = [[*range(8), 0, 1, 2, 3]] * 2
    request_body = placement_request(current=loaded, max_imbalance=1.1, move_gb_per_s=2, expert_bytes=10**9)
    async with sqlite_service.client() as client:
        made = (await client.post("/v1/placements", json=request_body)).json()
        read = (await client.get(f"/v1/placements/{made['id']}")).json()
    moves = read["placement"]["moves"]
    assert moves["copies"] == read["placement"]["moved_copies"] > 0
    assert moves["bytes"] == moves["copies"] * 10**9
    assert moves["duration_s"] == moves["batches"][-1]["end_s"] >= 0.5  # a copy of 1 GB at 2 GB/s
    assert moves["batches"][-1]["imbalance"] == pytest.approx(read["placement"]["imbalance"]["mean"])


async def test_a_placement_that_an_engine_cannot_load_is_not_exported(sqlite_service: RunningService) -> None:
    async with sqlite_service.client() as client:
        made = (await client.post("/v1/placements", json=placement_request(gpu_slots=[2, 2, 4, 4]))).json()
        answer = await client.get(f"/v1/placements/{made['id']}/export", params={"engine": "sglang"})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["path"] == "gpu_slots"


@pytest.mark.parametrize(
    ("changes", "path", "fragment"),
    [
        ({"slots": 13}, "slots", "multiple of the number of GPUs (4), got 13; nearest: 12 or 16"),
        ({"slots": 4}, "slots", "at least the number of experts (8), got 4"),
        ({"slots": 40}, "slots", "would hold 10 of 8 experts"),
        ({"nodes": 3}, "nodes", "must divide the number of GPUs (4), got 3"),
        ({"gpus": 0}, "gpus", "greater than or equal to 1"),
        ({"loads": [LOADS[0], [1.0] * 7]}, "loads[1]", "as many experts as the first layer (8), got 7"),
        ({"loads": [LOADS[0], [1.0] * 7 + [-1.0]]}, "loads[1][7]", "greater than or equal to 0"),
        ({"loads": [LOADS[0], [1.0] * 7 + [0.0]]}, "loads[1][7]", "must be above 0"),
        ({"loads": [LOADS[0], [1.0] * 7 + ["1"]]}, "loads[1][7]", "number"),
        ({"loads": None}, "loads", "give either loads or windows"),
        ({"loads": []}, "loads", "at least one"),
        ({"windows": [LOADS]}, "loads", "give either loads or windows"),
        ({"loads": None, "windows": [LOADS, LOADS[:1]]}, "windows[1]", "as many layers as the first window (2), got 1"),
        ({"gpu_speeds": [1.0, 1.0, 1.0]}, "gpu_speeds", "one number per GPU (4), got 3"),
        ({"gpu_speeds": [1.0, 1.0, 1.0, 0.0]}, "gpu_speeds[3]", "greater than or equal to 0.001"),
        ({"gpu_slots": [3, 3, 3, 4]}, "slots", "must be the sum of gpu_slots (13), got 12"),
        ({"groups": 3}, "groups", "must divide the number of experts (8), got 3"),
        ({"max_moves": 3}, "max_moves", "needs `current`, the placement"),
        ({"move_gb_per_s": 3, "expert_bytes": 9}, "move_gb_per_s", "needs `current`, the placement"),
        ({"move_gb_per_s": 3, "current": [[*range(8), 0, 1, 2, 3]] * 2}, "move_gb_per_s", "needs `expert_bytes`"),
        ({"move_gb_per_s": 0}, "move_gb_per_s", "greater than 0"),
        ({"node_gb_per_s": 3}, "node_gb_per_s", "needs `move_gb_per_s`"),
        ({"max_imbalance": 0.9}, "max_imbalance", "greater than or equal to 1"),
        ({"current": [list(range(8)) * 2] * 2}, "current", "must be layers x 12 slots"),
        ({"current": [[0, 1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 4]] * 2}, "current[0]", "must hold every expert"),
        ({"current": [[0, 1]]}, "current", "as many layers as the loads (2), got 1"),
        ({"current": [[0, 1], [0]]}, "current", "rows of one length"),
        ({"trace": [[[0, 1]]]}, "trace", "as many layers as the loads (2), got 1"),
        ({"trace": [[[0, 8], [1, 2]]]}, "trace[0][0][1]", "from 0 to 7"),
        ({"trace": [[[0], [1, 2]]]}, "trace", "rows of one length"),
        ({"trace": []}, "trace", "at least one"),
        ({"layers": [2, 1]}, "layers", "must rise"),
        ({"hidden_layers": 1}, "hidden_layers", "from 2"),
        ({"model": "Mixtal-8x7B"}, "model", "Mixtral-8x7B"),
        ({"model": "Mixtral-8x7B"}, "loads", "must have 32 MoE layers of 32"),
        ({"model": "DeepSeek-V3"}, "loads", "must have 256 experts per layer"),
        ({"model": "Llama-3.1-8B"}, "model", "must have experts"),
        ({"colour": "red"}, "colour", "not a known field"),
    ],
)  # fmt: skip
async def test_an_invalid_request_is_refused_by_field_and_not_stored(
    sqlite_service: RunningService, changes: dict[str, Any], path: str, fragment: str
) -> None:
    async with sqlite_service.client() as client:
        answer = await client.post("/v1/placements", json=placement_request(**changes))
        listed = await client.get("/v1/placements")
    assert answer.status_code == 422, answer.text
    found = {error["path"]: error["message"] for error in answer.json()["errors"]}
    assert path in found, found
    assert fragment in found[path]
    assert listed.json()["items"] == []


async def test_a_nan_load_is_refused(sqlite_service: RunningService) -> None:
    body = json.dumps(placement_request()).replace("9.0", "NaN", 1)
    async with sqlite_service.client() as client:
        answer = await client.post("/v1/placements", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["path"] == "loads[0][0]"


async def test_a_placement_is_created_once_per_idempotency_key(service: RunningService) -> None:
    async with service.client() as client:
        answers = await asyncio.gather(
            *(
                client.post("/v1/placements", json=placement_request(), headers={"Idempotency-Key": "k"})
                for _ in range(4)
            )
        )
        other = await client.post("/v1/placements", json=placement_request(slots=16), headers={"Idempotency-Key": "k"})
        listed = await client.get("/v1/placements")
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.text for answer in answers}) == 1
    assert other.status_code == 422
    assert len(listed.json()["items"]) == 1


async def test_placements_are_paged_newest_first(service: RunningService) -> None:
    ids = []
    async with service.client() as client:
        for _ in range(3):
            service.clock.advance(1)
            ids.append((await client.post("/v1/placements", json=placement_request())).json()["id"])
        first = (await client.get("/v1/placements", params={"limit": 2})).json()
        rest = (await client.get("/v1/placements", params={"limit": 2, "cursor": first["next_cursor"]})).json()
        missing = await client.get(f"/v1/placements/{UNKNOWN}")
    assert [item["id"] for item in first["items"] + rest["items"]] == ids[::-1]
    assert rest["next_cursor"] is None
    assert missing.status_code == 404


@pytest.mark.parametrize(("scope", "status"), [(TokenScope.READ, 403), (TokenScope.OPERATE, 403), (None, 401)])
async def test_placing_requires_the_plan_scope(
    sqlite_service: RunningService, scope: TokenScope | None, status: int
) -> None:
    async with sqlite_service.client(scope) as client:
        answer = await client.post("/v1/placements", json=placement_request())
    assert answer.status_code == status


async def test_the_response_is_a_valid_placement_record(sqlite_service: RunningService) -> None:
    async with sqlite_service.client() as client:
        made = await client.post("/v1/placements", json=placement_request(model=None, seed=3))
    record = PlacementRecord.model_validate_json(made.content)
    assert record.placement.provenance.seed == record.request.seed == 3
    assert record.placement.expert_of_slot.shape == (2, 12)
