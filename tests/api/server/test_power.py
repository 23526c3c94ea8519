"""Power over HTTP: consistent trees and budgets, stored simulations and cap plans."""

from collections.abc import Mapping
from typing import Any

import pytest

from api.schemas.power import CapPlanRecord, SimulationRecord
from api.schemas.tokens import TokenScope
from tests.testbed.service import RunningService, StartService

pytestmark = pytest.mark.anyio

CREATE = {"If-None-Match": "*"}
UNKNOWN = "01990000-0000-7000-8000-000000000000"
SOON, LATER = "2026-11-21T13:00:00Z", "2026-12-21T13:00:00Z"  # the service's clock is at 12:00


def tree(name: str = "north", *, rating_w: float = 200_000.0, row: str = "row-1", **changes: Any) -> dict[str, Any]:
    feeds = [
        {"name": f"pdu-{name}", "kind": "pdu", "limit_w": 500_000.0},
        {"name": row, "kind": "row", "parent": f"pdu-{name}", "limit_w": rating_w, "oversubscription": 2.0},
    ]
    group = {
        "name": "chat",
        "power_domain": row,
        "server": "8xA100-80GB BLOOM-176B",
        "count": 40,
        "priority": "low",
        "load": {"p50": 0.5, "p99": 0.8},
    }
    return {"name": name, "periods": 2, "feeds": feeds, "groups": [group]} | changes


def simulation_request(**changes: Any) -> dict[str, Any]:
    return {"servers": 12, "budget_servers": 8, "days": 0.02, "policy": "polca", "seed": 3} | changes


class TestTrees:
    async def test_a_tree_is_stored_by_name_with_versions(self, service: RunningService) -> None:
        async with service.client(TokenScope.PLAN) as planner, service.client() as admin:
            made = await planner.put("/v1/power/trees/north", json=tree(), headers=CREATE)
            taken = await planner.put("/v1/power/trees/north", json=tree(), headers=CREATE)
            etag = {"If-Match": made.headers["etag"]}
            second = await planner.put("/v1/power/trees/north", json=tree(rating_w=190_000.0), headers=etag)
            stale = await planner.put("/v1/power/trees/north", json=tree(), headers=etag)
            found = await admin.get("/v1/power/trees/north")
            listed = await admin.get("/v1/power/trees")
            audit = await admin.get("/v1/audit")
        assert (made.status_code, taken.status_code, second.status_code, stale.status_code) == (201, 412, 200, 412)
        assert found.json() == second.json() == listed.json()["items"][0]
        assert (found.json()["version"], found.headers["etag"]) == (2, second.headers["etag"])
        assert found.json()["tree"]["feeds"][1]["limit_w"] == 190_000.0
        actions = [entry["action"] for entry in audit.json()["items"] if entry["subject"] == "power/trees/north"]
        assert actions == ["power-tree.replaced", "power-tree.created"]

    @pytest.mark.parametrize(
        ("changes", "path", "fragment"),
        [
            ({"name": "south"}, "name", "must be the name in the path ('north'), got 'south'"),
            ({"feeds": []}, "feeds", "at least one"),
            ({"feeds": [{"name": "r", "kind": "row", "limit_w": -5.0}]}, "feeds[0].limit_w", "greater than 0"),
            ({"groups": [tree()["groups"][0] | {"power_domain": "row-9"}]}, "groups[0].power_domain", "row-1"),
            ({"rows": []}, "rows", "not a known field"),
            (
                {"feeds": [tree()["feeds"][0], tree()["feeds"][1] | {"limit_w": 600_000.0}]},
                "feeds[0].limit_w",
                "600,000 W are on it",
            ),
            (
                {"feeds": [tree()["feeds"][0], tree()["feeds"][1] | {"budget_w": 200_001.0}]},
                "feeds[1].budget_w[0]",
                "above the rating",
            ),
            ({"feeds": [tree()["feeds"][0], tree()["feeds"][1] | {"parent": "pdu-9"}]}, "feeds[1].parent", "pdu-north"),
            ({"feeds": [{}] * 20_000}, "feeds", "at most 10,000 entries, got 20,000"),
        ],
    )
    async def test_an_invalid_tree_is_refused_by_field_and_changes_nothing(
        self, sqlite_service: RunningService, changes: dict[str, Any], path: str, fragment: str
    ) -> None:
        async with sqlite_service.client() as client:
            before = await client.put("/v1/power/trees/north", json=tree(), headers=CREATE)
            replaced = {"If-Match": before.headers["etag"]}
            answer = await client.put("/v1/power/trees/north", json=tree(**changes), headers=replaced)
            after = await client.get("/v1/power/trees/north")
        assert answer.status_code == 422, answer.text
        found = {error["path"]: error["message"] for error in answer.json()["errors"]}
        assert fragment in found[path], found
        assert (after.content, after.headers["etag"]) == (before.content, before.headers["etag"])

    async def test_a_domain_may_be_in_one_tree_only(self, sqlite_service: RunningService) -> None:
        async with sqlite_service.client() as client:
            await client.put("/v1/power/trees/north", json=tree(), headers=CREATE)
            clash = await client.put("/v1/power/trees/south", json=tree("south"), headers=CREATE)
            other = await client.put("/v1/power/trees/south", json=tree("south", row="row-2"), headers=CREATE)
        assert (clash.status_code, other.status_code) == (422, 201)
        assert "'row-1' is in tree 'north' already" in clash.json()["errors"][0]["message"]

    @pytest.mark.parametrize(("scope", "status"), [(TokenScope.READ, 403), (TokenScope.OPERATE, 403), (None, 401)])
    async def test_writing_a_tree_requires_the_plan_scope(
        self, sqlite_service: RunningService, scope: TokenScope | None, status: int
    ) -> None:
        async with sqlite_service.client(scope) as client:
            put = await client.put("/v1/power/trees/north", json=tree(), headers=CREATE)
            deleted = await client.delete("/v1/power/trees/north", headers={"If-Match": "*"})
        assert (put.status_code, deleted.status_code) == (status, status)

    async def test_the_size_of_a_tree_is_limited(self, start_service: StartService, sqlite_url: str) -> None:
        async with start_service(sqlite_url, body_limit_bytes=4096) as service, service.client() as client:
            large = tree(groups=[tree()["groups"][0] | {"name": f"chat-{number}", "count": 1} for number in range(40)])
            answer = await client.put("/v1/power/trees/north", json=large, headers=CREATE)
            missing = await client.get("/v1/power/trees/north")
        assert (answer.status_code, missing.status_code) == (413, 404)

    async def test_a_domain_name_that_is_invalid_in_a_path_is_refused(self, sqlite_service: RunningService) -> None:
        async with sqlite_service.client() as client:
            answer = await client.put("/v1/power/trees/north", json=tree(row="hall/row-1"), headers=CREATE)
        assert answer.status_code == 422
        assert "'hall/row-1' cannot be named in a path; allowed: 1 to 63" in answer.json()["errors"][0]["message"]


async def budgeted(service: RunningService, limit_w: float = 150_000.0) -> Mapping[str, str]:
    """Store a tree and an active budget of its row; return the If-Match header of the budget."""
    async with service.client() as client:
        await client.put("/v1/power/trees/north", json=tree(), headers=CREATE)
        body = {"limit_w": limit_w, "expires_at": SOON}
        made = await client.put("/v1/power/budgets/row-1", json=body, headers=CREATE)
    assert made.status_code == 201, made.text
    return {"If-Match": made.headers["etag"]}


class TestBudgets:
    async def test_a_budget_is_set_read_replaced_and_withdrawn(self, service: RunningService) -> None:
        etag = await budgeted(service)
        body = {"limit_w": 160_000.0, "expires_at": SOON}
        async with service.client(TokenScope.OPERATE) as operator, service.client() as admin:
            second = await operator.put("/v1/power/budgets/row-1", json=body, headers=etag)
            found = await admin.get("/v1/power/budgets/row-1")
            same = await admin.get("/v1/power/budgets/row-1", headers={"If-None-Match": found.headers["etag"]})
            listed = await admin.get("/v1/power/budgets")
            gone = await operator.delete("/v1/power/budgets/row-1", headers={"If-Match": second.headers["etag"]})
            missing = await admin.get("/v1/power/budgets/row-1")
            audit = await admin.get("/v1/audit")
        assert found.json()["budget"] == body
        assert (found.json()["domain"], found.json()["version"], found.json()["set_by"]) == (
            "row-1",
            2,
            "token:operate",
        )
        assert listed.json()["items"] == [found.json()]
        assert (second.status_code, same.status_code, gone.status_code, missing.status_code) == (200, 304, 204, 404)
        actions = [entry["action"] for entry in audit.json()["items"] if entry["subject"] == "power/budgets/row-1"]
        assert actions == ["power-budget.deleted", "power-budget.replaced", "power-budget.created"]
        assert audit.json()["items"][1]["detail"]["limit_w"] == 160_000.0

    @pytest.mark.parametrize(
        ("domain", "changes", "path", "fragment"),
        [
            ("row-1", {"limit_w": 200_001.0}, "limit_w", "above the rating of 'row-1'; allowed: 0 to 200,000 W"),
            ("row-1", {"limit_w": -1.0}, "limit_w", "greater than or equal to 0, got -1.0"),
            ("row-1", {"limit_w": "150000"}, "limit_w", "number"),
            ("row-1", {"expires_at": "2026-11-21T11:59:00Z"}, "expires_at", "allowed: after 2026-11-21 12:00:00Z"),
            ("row-1", {"expires_at": LATER}, "expires_at", "at most 7 days later"),
            ("row-1", {"expires_at": "2026-11-21T13:00:00"}, "expires_at", "timezone"),
            ("row-1", {"limit_kw": 150.0}, "limit_kw", "not a known field"),
            ("row-7", {}, "path.domain", "unknown power domain 'row-7'; nearest: row-1"),
            ("-row", {}, "path.domain", "match pattern"),
        ],
    )
    async def test_an_invalid_budget_is_refused_by_field_and_changes_nothing(
        self, sqlite_service: RunningService, domain: str, changes: dict[str, Any], path: str, fragment: str
    ) -> None:
        etag = await budgeted(sqlite_service)
        body = {"limit_w": 100_000.0, "expires_at": SOON} | changes
        async with sqlite_service.client() as client:
            before = await client.get("/v1/power/budgets/row-1")
            condition = etag if domain == "row-1" else CREATE
            answer = await client.put(f"/v1/power/budgets/{domain}", json=body, headers=condition)
            after = await client.get("/v1/power/budgets/row-1")
        assert answer.status_code == 422, answer.text
        found = {error["path"]: error["message"] for error in answer.json()["errors"]}
        assert fragment in found[path], found
        assert (after.content, after.headers["etag"]) == (before.content, before.headers["etag"])

    @pytest.mark.parametrize(
        ("changes", "fragment"),
        [
            ({"rating_w": 149_000.0}, "above its new rating of 149,000 W"),
            ({"row": "row-2"}, "'row-1' has a budget of 150,000 W until 2026-11-21 13:00:00Z; delete that before"),
        ],
    )
    async def test_a_tree_must_fit_the_budgets_in_force_until_they_expire(
        self, sqlite_service: RunningService, changes: dict[str, Any], fragment: str
    ) -> None:
        await budgeted(sqlite_service)
        replaced = {"If-Match": "*"}
        async with sqlite_service.client() as client:
            refused = await client.put("/v1/power/trees/north", json=tree(**changes), headers=replaced)
            kept = await client.delete("/v1/power/trees/north", headers=replaced)
            sqlite_service.clock.advance(3600)
            taken = await client.put("/v1/power/trees/north", json=tree(**changes), headers=replaced)
        assert (refused.status_code, kept.status_code, taken.status_code) == (422, 422, 200)
        assert fragment in refused.json()["errors"][0]["message"]

    @pytest.mark.parametrize(("scope", "status"), [(TokenScope.READ, 403), (TokenScope.PLAN, 403), (None, 401)])
    async def test_setting_a_budget_requires_the_operate_scope(
        self, sqlite_service: RunningService, scope: TokenScope | None, status: int
    ) -> None:
        async with sqlite_service.client(scope) as client:
            body = {"limit_w": 1.0, "expires_at": SOON}
            answer = await client.put("/v1/power/budgets/row-1", json=body, headers=CREATE)
        assert answer.status_code == status


class TestSimulations:
    async def test_a_simulation_is_stored_with_its_request_and_audited(self, service: RunningService) -> None:
        async with service.client(TokenScope.PLAN) as planner, service.client() as admin:
            made = await planner.post("/v1/power/simulations", json=simulation_request())
            found = await admin.get(made.headers["location"])
            listed = await admin.get("/v1/power/simulations")
            audit = await admin.get("/v1/audit")
            metrics = await admin.get("/metrics")
        assert made.status_code == 201, made.text
        assert found.json() == made.json()
        record = SimulationRecord.model_validate_json(made.content)
        assert record.simulation.budget_w > 0
        assert record.simulation.requests > 0
        (shown,) = listed.json()["items"]
        assert (shown["id"], shown["policy"], shown["brakes"]) == (record.id, "polca", record.simulation.brakes)
        newest = audit.json()["items"][0]
        assert (newest["action"], newest["subject"]) == (
            "power-simulation.created",
            f"power/simulations/{record.id}",
        )
        outcome = "braked" if record.simulation.brakes else "clean"
        line = f'fleetwright_power_simulations_total{{outcome="{outcome}",policy="polca"}} 1.0'
        assert line in metrics.text.splitlines()

    async def test_a_simulation_request_may_include_traces(self, sqlite_service: RunningService) -> None:
        trace = {
            "name": "code",
            "arrival_s": [0.0, 1.0, 2.5],
            "input_tokens": [900, 4000, 50],
            "output_tokens": [9, 5, 1],
        }
        async with sqlite_service.client() as client:
            made = await client.post("/v1/power/simulations", json=simulation_request(traces=[trace]))
        assert made.status_code == 201, made.text
        assert "code" in made.json()["simulation"]["assumptions"]["work"]

    @pytest.mark.parametrize(
        ("changes", "path", "fragment"),
        [
            ({"servers": 0}, "servers", "greater than or equal to 1, got 0"),
            ({"days": -1.0}, "days", "greater than or equal to 0.01, got -1.0"),
            ({"policy": "polka"}, "policy", "'polca'"),
            ({"training_share": 1.5}, "training_share", "less than or equal to 1, got 1.5"),
            ({"budget_w": -5.0}, "budget_w", "greater than or equal to 1"),
            ({"servers": 2}, "servers", "must be at least 4"),
            ({"servers": 1000, "days": 2.0}, "days", "servers x days must be at most 1000 here, got 2000"),
            ({"traces": [{"arrival_s": [0.0, 1.0], "input_tokens": [1, 1], "output_tokens": [1]}]},
             "traces[0].output_tokens", "at least one"),
            ({"traces": [{"arrival_s": [0.0, 9.0, 1.0], "input_tokens": [1] * 3, "output_tokens": [1] * 3}]},
             "traces[0].arrival_s[2]", "at least 9"),
            ({"days": "1"}, "days", "number"),
        ],
    )  # fmt: skip
    async def test_an_invalid_simulation_request_is_refused_by_field_and_not_stored(
        self, sqlite_service: RunningService, changes: dict[str, Any], path: str, fragment: str
    ) -> None:
        async with sqlite_service.client() as client:
            answer = await client.post("/v1/power/simulations", json=simulation_request(**changes))
            listed = await client.get("/v1/power/simulations")
        assert answer.status_code == 422, answer.text
        found = {error["path"]: error["message"] for error in answer.json()["errors"]}
        assert fragment in found[path], found
        assert listed.json()["items"] == []

    async def test_a_setting_limits_the_size_of_a_simulation(
        self, start_service: StartService, sqlite_url: str
    ) -> None:
        async with start_service(sqlite_url, simulation_server_days=0.1) as service, service.client() as client:
            answer = await client.post("/v1/power/simulations", json=simulation_request())
        assert answer.status_code == 422
        assert "at most 0.1 here, got 0.24" in answer.json()["errors"][0]["message"]

    async def test_a_simulation_is_created_once_per_key_and_lists_are_paged(
        self, sqlite_service: RunningService
    ) -> None:
        async with sqlite_service.client() as client:
            key = {"Idempotency-Key": "k"}
            first = await client.post("/v1/power/simulations", json=simulation_request(), headers=key)
            again = await client.post("/v1/power/simulations", json=simulation_request(), headers=key)
            sqlite_service.clock.advance(1)
            other = await client.post("/v1/power/simulations", json=simulation_request(seed=4))
            page = (await client.get("/v1/power/simulations", params={"limit": 1})).json()
            rest = (await client.get("/v1/power/simulations", params={"cursor": page["next_cursor"]})).json()
            missing = await client.get(f"/v1/power/simulations/{UNKNOWN}")
        assert first.text == again.text
        assert [item["id"] for item in page["items"] + rest["items"]] == [other.json()["id"], first.json()["id"]]
        assert missing.status_code == 404


class TestPlans:
    async def test_a_plan_of_a_stored_tree_records_the_version_of_the_tree(self, service: RunningService) -> None:
        async with service.client() as client:
            feeds = tree()["feeds"]
            feeds[1]["budget_w"] = 150_000.0
            await client.put("/v1/power/trees/north", json=tree(feeds=feeds), headers=CREATE)
            made = await client.post("/v1/power/plans", json={"tree_name": "north", "terms": {"risk": 0.01}})
            found = await client.get(made.headers["location"])
            listed = await client.get("/v1/power/plans")
            audit = await client.get("/v1/audit")
        assert made.status_code == 201, made.text
        assert found.json() == made.json()
        plan = CapPlanRecord.model_validate_json(made.content).plan
        assert (plan.tree, plan.risk, len(plan.periods)) == ("north", 0.01, 2)
        row = plan.feed("row-1", 0)
        assert row.limit_w is not None
        assert row.peak_w <= row.limit_w < row.uncapped_peak_w
        (shown,) = listed.json()["items"]
        assert (shown["tree"], shown["tree_version"], shown["loss"]) == ("north", 1, plan.loss)
        assert audit.json()["items"][0]["action"] == "power-plan.created"

    async def test_a_plan_is_created_once_per_idempotency_key(self, sqlite_service: RunningService) -> None:
        async with sqlite_service.client() as client:
            key = {"Idempotency-Key": "k"}
            first = await client.post("/v1/power/plans", json={"tree": tree()}, headers=key)
            again = await client.post("/v1/power/plans", json={"tree": tree()}, headers=key)
            other = await client.post("/v1/power/plans", json={"tree": tree("south")}, headers=key)
            listed = await client.get("/v1/power/plans")
        assert (first.status_code, again.status_code, other.status_code) == (201, 201, 422)
        assert first.text == again.text
        assert [item["id"] for item in listed.json()["items"]] == [first.json()["id"]]

    async def test_an_infeasible_tree_gives_a_result_with_conflicts(self, sqlite_service: RunningService) -> None:
        async with sqlite_service.client() as client:
            feeds = tree()["feeds"]
            feeds[1]["budget_w"] = 50_000.0
            made = await client.post("/v1/power/plans", json={"tree": tree(feeds=feeds)})
            metrics = await client.get("/metrics")
        assert made.status_code == 201, made.text
        plan = made.json()["plan"]
        assert plan["status"] == "infeasible"
        assert "row-1 may draw 50,000 W" in plan["conflicts"][0]["reason"]
        assert 'fleetwright_power_plans_total{status="infeasible"} 1.0' in metrics.text.splitlines()

    @pytest.mark.parametrize(
        ("body", "path", "fragment"),
        [
            ({}, "tree", "give either tree or tree_name"),
            ({"tree": tree(), "tree_name": "north"}, "tree", "give either tree or tree_name"),
            ({"tree_name": "west"}, "tree_name", "there is no power tree 'west'"),
            ({"tree": tree(), "terms": {"risk": 0.9}}, "terms.risk", "less than or equal to 0.5"),
        ],
    )
    async def test_an_invalid_plan_request_is_refused_by_field(
        self, sqlite_service: RunningService, body: dict[str, Any], path: str, fragment: str
    ) -> None:
        async with sqlite_service.client() as client:
            answer = await client.post("/v1/power/plans", json=body)
            missing = await client.get(f"/v1/power/plans/{UNKNOWN}")
        assert (answer.status_code, missing.status_code) == (422, 404)
        found = {error["path"]: error["message"] for error in answer.json()["errors"]}
        assert fragment in found[path], found
