"""Names and labels of stored results, and the lists that select by them."""

import json
from datetime import timedelta
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.schemas.labels import MAX_LABELS, label_text, labels_of, selector_of
from api.schemas.tokens import TokenScope
from tests.api.server.test_plans import OPTIONS, plan_request
from tests.testbed.service import RunningService

pytestmark = pytest.mark.anyio
PLACEMENT = {"loads": [[9, 5, 4, 3], [1, 2, 3, 9]], "slots": 6, "gpus": 2, "nodes": 1}
CHARACTERS = st.characters(codec="ascii", categories=("Lu", "Ll", "Nd"))
PARTS = st.text(CHARACTERS, min_size=1, max_size=63)


@given(st.dictionaries(PARTS, PARTS, min_size=1, max_size=MAX_LABELS))
def test_labels_survive_their_text(labels: dict[str, str]) -> None:
    assert labels_of(label_text(labels)) == labels
    assert selector_of(label_text(labels)) == labels


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("team", "KEY=VALUE"),
        ("team=a,team=b", "given twice"),
        ("-team=a", "as key"),
        ("team=a b", "as value"),
        (f"{'k' * 64}=a", "up to 63"),
        (f"k={'v' * 64}", "up to 63"),
        (",".join(f"k{n}=v" for n in range(MAX_LABELS + 1)), "at most 16"),
    ],
)
def test_wrong_labels_are_refused_by_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        labels_of(text)


def test_a_prefixed_key_and_an_empty_value_are_labels() -> None:
    assert labels_of("example.org/team=, tier=gold") == {"example.org/team": "", "tier": "gold"}
    assert selector_of("example.org/team,tier=gold") == {"example.org/team": None, "tier": "gold"}


async def made(client: httpx.AsyncClient, body: Any, path: str = "plans", **query: str) -> dict[str, Any]:
    answer = await client.post(f"/v1/{path}", json=body, params=query)
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


async def listed(client: httpx.AsyncClient, path: str = "plans", **query: str) -> list[str]:
    """All ids of a list, in pages of one."""
    ids: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        answer = await client.get(f"/v1/{path}", params={"limit": "1", **query, **cursor})
        assert answer.status_code == 200, answer.text
        ids += [item["id"] for item in answer.json()["items"]]
        if (following := answer.json()["next_cursor"]) is None:
            return ids
        cursor = {"cursor": following}


async def test_name_and_labels_are_in_the_record_the_list_and_the_job(service: RunningService) -> None:
    async with service.client() as client:
        record = await made(client, plan_request(), name="chat, week 48", labels="team=search,tier=gold")
        found = (await client.get(f"/v1/plans/{record['id']}")).json()
        (item,) = (await client.get("/v1/plans")).json()["items"]
        job = (await client.get(f"/v1/jobs/{record['id']}")).json()
    for each in (record, found, item, job):
        assert (each["name"], each["labels"]) == ("chat, week 48", {"team": "search", "tier": "gold"})


async def test_every_kind_takes_a_name(sqlite_service: RunningService) -> None:
    async with sqlite_service.client() as client:
        for path, body in (
            ("placements", PLACEMENT),
            ("power/simulations", {"servers": 4, "days": 0.01, "policy": "ladder", "seed": 1}),
            ("faults/simulations", {"ranks": 128, "hours": 0.02}),
        ):
            record = await made(client, body, path, name="a", labels="k=v")
            assert (record["name"], record["labels"]) == ("a", {"k": "v"}), path
            assert await listed(client, path, name="a", labels="k") == [record["id"]]


async def test_a_copied_result_has_its_own_name_and_labels(service: RunningService) -> None:
    async with service.client() as client:
        first = await made(client, plan_request(), name="first", labels="a=1")
        copy = await made(client, plan_request(), name="copy")
        plain = await made(client, plan_request())
        assert first["plan"] == copy["plan"] == plain["plan"], "copied, with the time of the first"
        assert [each["name"] for each in (first, copy, plain)] == ["first", "copy", None]
        assert [each["labels"] for each in (first, copy, plain)] == [{"a": "1"}, {}, {}]
        assert await listed(client, labels="a=1") == [first["id"]]


async def test_a_large_body_which_only_the_job_reads_has_a_name_too(service: RunningService) -> None:
    options = [OPTIONS[0] | {"name": f"option {number:03}", "gpu": "A10G " + "x" * 80} for number in range(250)]
    body = plan_request(options=options)
    assert len(json.dumps(body)) > 32 * 1024
    async with service.client() as client:
        record = await made(client, body, name="large", labels="size=large")
        wrong = await client.post("/v1/plans", json=body, params={"labels": "size"})
    assert (record["name"], record["labels"]) == ("large", {"size": "large"})
    assert (wrong.status_code, wrong.json()["errors"][0]["path"]) == (422, "query.labels")


async def test_lists_select_by_name_labels_caller_time_and_status(service: RunningService) -> None:
    short = plan_request(options=[option | {"available": 1} for option in OPTIONS])
    async with service.client() as admin, service.client(TokenScope.PLAN) as planner:
        first = await made(admin, plan_request(), name="chat 1", labels="team=a,tier=gold")
        service.clock.advance(60)
        second = await made(planner, plan_request(rate_rps=31), name="Chat 2", labels="team=a")
        service.clock.advance(60)
        third = await made(admin, short, name="chat%", labels="team=b")
        service.clock.advance(60)
        fourth = await made(admin, plan_request(rate_rps=32))
        middle = (service.clock.now() - timedelta(seconds=90)).isoformat()
        ids = [each["id"] for each in (fourth, third, second, first)]
        for query, chosen in (
            ({}, [0, 1, 2, 3]),
            ({"name": "chat"}, [1, 3]),
            ({"name": "chat%"}, [1]),
            ({"labels": "team"}, [1, 2, 3]),
            ({"labels": "team=a"}, [2, 3]),
            ({"labels": "team=a,tier"}, [3]),
            ({"labels": "team=c"}, []),
            ({"created_by": "token:plan"}, [2]),
            ({"created_after": middle}, [0, 1]),
            ({"created_before": middle}, [2, 3]),
            ({"status": "optimal"}, [0, 2, 3]),
            ({"status": "infeasible"}, [1]),
            ({"status": "time_limit"}, []),
            ({"status": "optimal", "labels": "team=a", "name": "Chat"}, [2]),
        ):
            assert await listed(admin, **query) == [ids[position] for position in chosen], query


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"name": ""}, "query.name"),
        ({"name": "n" * 201}, "query.name"),
        ({"labels": "k"}, "query.labels"),
        ({"labels": "k=ä"}, "query.labels"),
        ({"label": "k=v"}, "query.label"),
    ],
)
async def test_a_wrong_name_or_label_of_a_new_result_is_refused_by_field(
    sqlite_service: RunningService, query: dict[str, str], field: str
) -> None:
    async with sqlite_service.client() as client:
        answer = await client.post("/v1/plans", json=plan_request(), params=query)
        assert await listed(client) == []
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["path"] == field


@pytest.mark.parametrize(
    ("path", "query", "field"),
    [
        ("plans", {"labels": "a=b,a=c"}, "query.labels"),
        ("plans", {"status": "good"}, "query.status"),
        ("plans", {"created_after": "2026-11-21"}, "query.created_after"),
        ("placements", {"status": "optimal"}, "query.status"),
    ],
)
async def test_a_wrong_filter_is_refused_by_field(
    sqlite_service: RunningService, path: str, query: dict[str, str], field: str
) -> None:
    async with sqlite_service.client() as client:
        answer = await client.get(f"/v1/{path}", params=query)
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["path"] == field


async def test_a_key_with_another_name_is_another_request(sqlite_service: RunningService) -> None:
    key = {"Idempotency-Key": "k"}
    async with sqlite_service.client() as client:
        first = await client.post("/v1/plans", json=plan_request(), params={"name": "a"}, headers=key)
        same = await client.post("/v1/plans", json=plan_request(), params={"name": "a"}, headers=key)
        other = await client.post("/v1/plans", json=plan_request(), params={"name": "b"}, headers=key)
    assert (first.status_code, same.json(), other.status_code) == (201, first.json(), 422)
