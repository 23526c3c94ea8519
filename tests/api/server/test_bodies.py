"""Limits of request bodies: size by route, problems in a response, and the process that checks large ones."""

import asyncio
import json
import os
import signal
from http import HTTPStatus
from typing import Any

import pytest
from pydantic import ValidationError

from api.jobs.body import PARTLY_CHARACTERS, read_body
from api.jobs.pruning import MAX_ITEMS, prune
from api.schemas.tokens import TokenScope
from api.server.bodies import BodyBudget
from api.server.bodies.checker import BodyChecker
from api.server.problems import ProblemError
from api.server.service import Service
from fleet.documents import MAX_KEY, MAX_PROBLEMS
from fleet.errors import DocumentError
from fleet.offers import PriceSheet
from planner.request import PlanRequest
from tests.testbed.service import RunningService, StartService

pytestmark = pytest.mark.anyio

JSON = {"Content-Type": "application/json"}
OFFER = {
    "provider": "p",
    "region": "eu",
    "market": "on-demand",
    "gpu": "H100-SXM5-80GB",
    "price_usd_per_h": 2.0,
    "as_of": "2026-11-01",
    "source": "list",
}
WRONG_SIZES = {"parsed by the event loop": 1_000, "checked whole": 40_000, "checked in part": 900_000}


def wrong_items(size_bytes: int) -> bytes:
    return b'{"offers":[' + b"0," * (size_bytes // 2) + b"0]}"


async def put_offers(running: RunningService, body: bytes) -> tuple[int, Any]:
    async with running.client(TokenScope.PLAN) as planner:
        answer = await planner.put("/v1/offers", content=body, headers=JSON | {"If-Match": '"0-0"'})
    return answer.status_code, answer.json()


@pytest.mark.parametrize("size_bytes", WRONG_SIZES.values(), ids=WRONG_SIZES)
async def test_a_response_shows_at_most_100_problems(sqlite_service: RunningService, size_bytes: int) -> None:
    status, problem = await put_offers(sqlite_service, wrong_items(size_bytes))
    assert status == 422
    assert len(problem["errors"]) == MAX_PROBLEMS
    assert problem["errors"][99] == {"path": "offers[99]", "message": "expected a mapping of fields, got 0"}
    count = MAX_ITEMS if size_bytes > PARTLY_CHARACTERS else size_bytes // 2 + 1
    assert problem["detail"].startswith(f"{count:,} fields are not acceptable: the first 100, and {count - 100:,} more")


@pytest.mark.parametrize(
    "body",
    [
        pytest.param('{"offers": [], "x%s": 0}', id="unknown and empty"),
        pytest.param('{"offers": [{"id": 5, "gpu": true}], "x%s": true}', id="wrong type"),
        pytest.param('{"a": 1, "a": 2, "p%s": 0}', id="twice"),
        pytest.param('{"a": 1, "p%s": 0', id="unfinished"),
        pytest.param('{"a": "\\ud800", "p%s": 0}', id="surrogate"),
        pytest.param('[{"p%s": 0}]', id="list"),
        pytest.param('"p%s"', id="text"),
        pytest.param("[" * 30_000 + "%s", id="deep"),
        pytest.param('\ufeff{"p%s": 0}', id="byte order mark"),
    ],
)
async def test_a_large_body_has_the_problems_of_a_small_one(sqlite_service: RunningService, body: str) -> None:
    """The helper process checks the padded one."""
    texts = [(body % "").encode(), (body % ("p" * 20 * 1024)).encode()]
    if "[[" in body:
        texts[0] = b"[" * 10_000
    (small_status, small), (large_status, large) = [await put_offers(sqlite_service, text) for text in texts]
    assert sqlite_service.app.state.service.body_checker.is_running
    assert (large_status, large["type"], len(large["errors"])) == (small_status, small["type"], len(small["errors"]))
    for before, after in zip(small["errors"], large["errors"], strict=True):
        assert after["message"].partition("character")[0][:20] == before["message"].partition("character")[0][:20]


async def test_a_long_key_is_shortened_in_its_problem(sqlite_service: RunningService) -> None:
    _status, problem = await put_offers(sqlite_service, b'{"' + b"k" * 1_000_000 + b'": 0}')
    assert problem["errors"][-1]["message"] == "is not a known field"
    assert len(problem["errors"][-1]["path"]) < 2 * MAX_KEY


async def test_a_check_that_needs_too_much_is_ended_and_the_next_one_runs(
    start_service: StartService, sqlite_url: str
) -> None:
    """The mistakes begin behind the part that is checked first."""
    offer = json.dumps(OFFER | {"id": "a"}).encode() + b","
    costly = b'{"offers":[' + offer * MAX_ITEMS + b"0," * 3_500_000 + b"0]}"
    async with start_service(sqlite_url, document_body_limit_bytes=8 * 1024 * 1024) as running:
        status, problem = await put_offers(running, costly)
        assert (status, problem["type"]) == (422, "urn:fleetwright:problem:body-too-costly")
        assert problem["detail"] == "body: its check was ended; allowed: 10 s of a processor and 512 MiB of memory"
        status, problem = await put_offers(running, wrong_items(100_000))
        assert (status, problem["type"]) == (422, "urn:fleetwright:problem:invalid-request")


async def test_a_killed_helper_is_replaced() -> None:
    checker = BodyChecker()
    with pytest.raises(ProblemError, match="workloads"):
        await checker.check(PlanRequest, b"{}")
    first = checker.process_id
    assert first is not None
    os.kill(first, signal.SIGKILL)
    async with asyncio.timeout(30):
        while checker.is_running:
            await asyncio.sleep(0.01)
    with pytest.raises(ProblemError, match="workloads"):
        await checker.check(PlanRequest, b"{}")
    assert checker.process_id not in {None, first}
    await checker.close()
    assert not checker.is_running


async def test_a_caller_that_leaves_does_not_get_the_next_answer_wrong() -> None:
    checker = BodyChecker()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await checker.check(PlanRequest, wrong_items(7_000_000))
    with pytest.raises(ProblemError, match="JSON"):
        await checker.check(PlanRequest, b"{")
    await checker.close()


async def test_body_limits_are_by_route(start_service: StartService, sqlite_url: str) -> None:
    """A plan may be 8 MiB, a target 1 MiB; the response names the limit."""
    body = b" " * (1024 * 1024 + 1)
    async with start_service(sqlite_url) as running, running.client(TokenScope.ADMIN) as client:
        target = await client.put("/v1/targets/a", content=body, headers=JSON | {"If-None-Match": "*"})
        plan = await client.post("/v1/plans", content=body, headers=JSON | {"Prefer": "respond-async"})
        large_plan = await client.post("/v1/plans", content=body * 8, headers=JSON)
    assert (target.status_code, target.json()["detail"]) == (413, "body: is too large; allowed: 1048576 bytes")
    assert plan.status_code == 202
    assert (large_plan.status_code, large_plan.json()["detail"]) == (413, "body: is too large; allowed: 8388608 bytes")
    assert large_plan.headers["connection"] == "close"


async def test_bodies_share_a_budget_of_memory(sqlite_service: RunningService) -> None:
    service: Service = sqlite_service.app.state.service
    with service.body_budget.share() as others:
        others.grow(64 * 1024 * 1024 - 10)
        status, problem = await put_offers(sqlite_service, wrong_items(1_000))
        assert (status, problem["type"]) == (503, "urn:fleetwright:problem:bodies-busy")
    assert (await put_offers(sqlite_service, wrong_items(1_000)))[0] == 422


def test_a_share_of_the_budget_is_returned() -> None:
    budget = BodyBudget(total_bytes=10)
    for _each in range(3):
        with budget.share() as share:
            share.grow(6)
            with pytest.raises(ProblemError) as refused:
                share.grow(6)
            assert refused.value.status is HTTPStatus.SERVICE_UNAVAILABLE


def test_pruning_keeps_the_first_parts() -> None:
    document = {"a": list(range(5000)), "b": {str(key): [[]] for key in range(3)}, "c": "text"}
    part, whole = prune(document)
    assert (part["a"], part["b"], part["c"], whole) == (list(range(MAX_ITEMS)), document["b"], "text", False)
    assert prune(document["b"]) == (document["b"], True)


def test_a_pruned_document_is_small_however_it_is_nested() -> None:
    part, whole = prune([[[0] * 500] * 500] * 5)
    assert not whole
    assert len(json.dumps(part)) < 100_000


class TestJobs:
    """The process of a job reads bodies over 32 KiB of the routes that make results."""

    def test_a_large_wrong_body_has_at_most_100_problems(self) -> None:
        body = wrong_items(5_000_000).replace(b"offers", b"workloads").decode()
        with pytest.raises(DocumentError) as refused:
            read_body(PlanRequest, body)
        problems = refused.value.problems
        assert len(problems) == MAX_PROBLEMS
        assert problems[0].path == "workloads[0]"
        assert problems[-1].message == "and 901 more in its first part"

    def test_a_large_right_body_is_read_whole(self) -> None:
        offers = {"offers": [OFFER | {"id": f"p/{number}"} for number in range(3_000)]}
        assert len(read_body(PriceSheet, json.dumps(offers)).offers) == 3_000

    def test_a_mistake_behind_the_first_part_is_found(self) -> None:
        offers = {"offers": [OFFER | {"id": f"p/{number}"} for number in range(3_000)]}
        offers["offers"][2_500]["gpu"] = 5
        with pytest.raises(ValidationError, match=r"offers\.2500\.gpu"):
            read_body(PriceSheet, json.dumps(offers))
