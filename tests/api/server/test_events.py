"""`/v1/events`: what a reader receives of the changes, up to the newest.  Streams that go on: `tests/processes`."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from api.schemas.events import ChangeEvent
from api.schemas.tokens import TokenScope
from api.server.events import OF_FLEET, OF_PROJECTS, EventFilter
from api.server.projects import WHOLE_FLEET, ProjectAccess
from api.store import ChangeRecord
from tests.api.server.test_plans import plan_request
from tests.api.server.test_targets import CREATE, SPEC
from tests.testbed.fault_bundles import node_diagnosis
from tests.testbed.service import RunningService, StartService
from tests.testbed.waiting import PATIENCE_S

pytestmark = pytest.mark.anyio
ANY = {"If-Match": "*"}
NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


async def received(client: httpx.AsyncClient, **query: Any) -> list[ChangeEvent]:
    headers: dict[str, str] = {
        name: query.pop(name) for name in ("Last-Event-ID", "Fleetwright-Project") if name in query
    }
    answer = await client.get("/v1/events", params={"after": 0} | query, headers=headers)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    return [ChangeEvent.model_validate_json(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]


async def fill(service: RunningService) -> None:
    async with service.client() as admin:
        assert (await admin.put("/v1/projects/team-a", json={}, headers=CREATE)).status_code == 201
        plan = (await admin.post("/v1/plans", json=plan_request())).json()
        own = {"Fleetwright-Project": "team-a"}
        await admin.put("/v1/targets/chat", json=SPEC, headers=CREATE | own)
        await admin.put("/v1/targets/other", json=SPEC | {"plan_id": plan["id"]}, headers=CREATE)
        await admin.post("/v1/faults/diagnoses", json=node_diagnosis("gpu-1"), headers=own)
        await admin.put("/v1/freeze", json={"frozen": True}, headers=ANY)
        await admin.post("/v1/tokens", json={"name": "ci", "scopes": ["read"]})


async def test_writes_are_events_in_the_order_of_the_audit(service: RunningService) -> None:
    await fill(service)
    async with service.client(TokenScope.READ) as reader, service.client() as admin:
        events = await received(reader)
        entries = {entry["seq"]: entry for entry in (await admin.get("/v1/audit?limit=200")).json()["items"]}
    assert [event.type for event in events] == [
        *("project.created", "plan.created", "target.created", "target.created", "diagnosis.reported", "fleet.frozen")
    ], "and none of tokens"
    assert [event.id for event in events] == sorted(event.id for event in events)
    for event in events:
        entry = entries[event.id]
        assert (event.type, event.subject) == (entry["action"], entry["subject"])
    assert [event.project for event in events] == ["team-a", "default", "team-a", "default", "team-a", None]


async def test_a_reader_of_a_project_receives_its_events_and_those_of_the_fleet(service: RunningService) -> None:
    await fill(service)
    async with service.client() as admin:
        request = {"name": "a", "scopes": ["read"], "project": "team-a"}
        secret = (await admin.post("/v1/tokens", json=request)).json()["secret"]
        chosen = await received(admin, **{"Fleetwright-Project": "team-a"})
    async with service.client(None, params={}) as client:
        client.headers["Authorization"] = f"Bearer {secret}"
        own = await received(client)
    types = ["project.created", "target.created", "diagnosis.reported", "fleet.frozen"]
    assert [event.type for event in own] == [event.type for event in chosen] == types


async def test_a_reader_chooses_types_and_where_to_begin(sqlite_service: RunningService) -> None:
    await fill(sqlite_service)
    async with sqlite_service.client(TokenScope.READ) as reader:
        every = await received(reader)
        targets = await received(reader, type="target.,fleet.f")
        rest = await received(reader, after=every[2].id)
        resumed = await received(reader, **{"Last-Event-ID": str(every[3].id)})
        now = await reader.get("/v1/events")
    assert [event.type for event in targets] == ["target.created", "target.created", "fleet.frozen"]
    assert (rest, resumed) == (every[3:], every[4:]), "the header comes before the query"
    newest = int(now.text.partition("id: ")[2].split()[0])
    assert newest > every[-1].id, "the token that was made last is no event"
    assert "data:" not in now.text


@pytest.mark.parametrize(
    ("query", "headers", "path"),
    [
        ({"after": "-1"}, {}, "query.after"),
        ({"type": "Target"}, {}, "query.type"),
        ({}, {"Last-Event-ID": "newest"}, "header.Last-Event-ID"),
    ],
)
async def test_a_wrong_place_or_type_is_refused(
    sqlite_service: RunningService, query: dict[str, str], headers: dict[str, str], path: str
) -> None:
    async with sqlite_service.client(TokenScope.READ) as reader:
        answer = await reader.get("/v1/events", params=query, headers=headers)
    assert (answer.status_code, answer.json()["errors"][0]["path"]) == (422, path)


async def test_events_of_another_history_are_gone(service: RunningService) -> None:
    """A database that was restored from a backup ends earlier; the reader must read the state again."""
    await fill(service)
    async with service.client(TokenScope.READ) as reader:
        newest = (await received(reader))[-1].id + 1
        beyond = await reader.get("/v1/events", params={"after": newest + 1})
        at_end = await reader.get("/v1/events", params={"after": newest})
    assert (beyond.status_code, at_end.status_code) == (410, 200)
    assert beyond.json()["type"].endswith(":events-gone")
    assert f"follow the events after {newest}" in beyond.json()["detail"]


async def test_more_followers_than_allowed_are_refused(start_service: StartService, sqlite_url: str) -> None:
    async with start_service(sqlite_url, event_followers=3, event_followers_per_caller=2) as running:
        feed = running.app.state.service.events
        with feed.follower("token:a"), feed.follower("token:a"):
            for actor, allowed in (("token:a", 2), ("token:b", None)):
                if allowed is None:
                    with feed.follower(actor), pytest.raises(Exception, match="at most 3 may"), feed.follower("c"):
                        pass
                else:
                    with pytest.raises(Exception, match=f"2 requests of this caller .* at most {allowed} may"):
                        feed.follower(actor).__enter__()
        with feed.follower("token:a"):
            pass
    async with start_service(sqlite_url, event_followers=0) as running, running.client(TokenScope.READ) as reader:
        answer = await reader.get("/v1/events?follow=true")
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "5")
    assert answer.json()["type"].endswith(":too-many-followers")


async def test_all_followers_share_one_poll(service: RunningService, monkeypatch: pytest.MonkeyPatch) -> None:
    feed, store = service.app.state.service.events, service.app.state.service.store
    followers, begin = 20, await feed.head()
    reads = 0
    read = store.reading

    def counted(**options: Any) -> Any:
        nonlocal reads
        reads += 1
        return read(**options)

    async def next_of() -> list[str]:
        with feed.follower(f"token:{asyncio.current_task()}"):
            while not (found := await feed.after(begin, follow=True)):
                await feed.wait(begin, timeout_s=PATIENCE_S)
            return [record.action for record in found]

    with feed.follower("token:first"):
        while not feed._end:
            await feed.wait(begin, timeout_s=PATIENCE_S)
        waiting = [asyncio.create_task(next_of()) for _ in range(followers)]
        await asyncio.sleep(0)
        async with service.client() as admin:
            await admin.get("/v1/freeze")  # what a request itself reads is cached or counted below
            monkeypatch.setattr(store, "reading", counted)
            await admin.put("/v1/freeze", json={"frozen": True}, headers=ANY)
            of_request, reads = reads, 0
        async with asyncio.timeout(PATIENCE_S):
            found = await asyncio.gather(*waiting)
    assert found == [["fleet.frozen"]] * followers
    assert of_request + reads < followers


def test_only_what_a_reader_may_read_is_an_event() -> None:
    """An entry of release 0.2.0 has no project: only a reader of the whole fleet receives it."""

    def types(access: ProjectAccess, project: str | None) -> set[str]:
        families = (*OF_FLEET, *OF_PROJECTS, "token", "session", "request", "audit", "gc", "of-a-newer-release")
        records = [ChangeRecord(1, NOW, f"{family}.x", "s", project) for family in families]
        events = map(EventFilter(access).event, records)
        return {event.type.removesuffix(".x") for event in events if event is not None}

    team = ProjectAccess(of_new="team-a", visible="team-a")
    assert types(WHOLE_FLEET, None) == OF_FLEET | OF_PROJECTS
    assert types(team, "team-a") == OF_FLEET | OF_PROJECTS
    assert types(team, "team-b") == types(team, None) == OF_FLEET
