"""`/v1/audit`: filters, the export, checks from a checkpoint or an anchor."""

import asyncio
import json

import pytest

from api.schemas.tokens import TokenScope
from api.server.routes.audit import EXPORTED_AT_ONCE
from api.store.audit_chain import GENESIS_HASH
from api.store.canonical import canonical_json, sha256_hex
from tests.api.store.test_audit import tamper
from tests.testbed.jobs import run_worker
from tests.testbed.service import RunningService, StartService
from tests.testbed.waiting import wait_for

pytestmark = pytest.mark.anyio
ACCEPT = {"Accept": "application/x-ndjson"}


async def write(service: RunningService, *entries: tuple[str, str, str]) -> None:
    """Append entries of actor, action and subject, a second apart."""
    parts = service.app.state.service
    async with parts.store.transaction() as tx:
        for actor, action, subject in entries:
            service.clock.advance(1.0)
            await parts.audit(tx, actor=actor, action=action, subject=subject, detail={"é": [1, 2.5, None]})


@pytest.mark.parametrize(
    ("query", "subjects"),
    [
        ("actor=token:a", ["plans/2", "plans/1"]),
        ("action=diagnosis.reported", ["faults/diagnoses/2", "faults/diagnoses/1"]),
        ("subject=plans/", ["plans/2", "plans/1"]),
        ("subject=Plans/", []),
        ("subject=faults/diagnoses/1", ["faults/diagnoses/1"]),
        ("subject=faults/", ["faults/diagnoses/2", "faults/diagnoses/1"]),
        ("subject=plans/1&actor=token:b", []),
        ("from_seq=3&to_seq=4", ["faults/diagnoses/1", "plans/2"]),
        ("from=2026-11-21T12:00:02Z&to=2026-11-21T12:00:04Z", ["faults/diagnoses/1", "plans/2"]),
        ("from=2026-11-21T14:00:02%2B02:00&to=2026-11-21T14:00:04%2B02:00", ["faults/diagnoses/1", "plans/2"]),
    ],
)
async def test_entries_are_chosen_by_time_number_actor_action_and_subject(
    service: RunningService, query: str, subjects: list[str]
) -> None:
    await write(
        service,
        ("token:a", "plan.created", "plans/1"),
        ("token:a", "plan.created", "plans/2"),
        ("token:b", "fault-verdict.reported", "faults/verdicts/1"),
        ("token:b", "diagnosis.reported", "faults/diagnoses/2"),
    )
    async with service.client() as client:
        found = await client.get(f"/v1/audit?{query}")
        first = await client.get(f"/v1/audit?{query}&limit=1")
        exported = await client.get(f"/v1/audit?{query}", headers=ACCEPT)
    assert [entry["subject"] for entry in found.json()["items"]] == subjects
    assert [entry["subject"] for entry in first.json()["items"]] == subjects[:1]
    lines = [json.loads(line) for line in exported.text.splitlines()]
    assert [line["seq"] for line in lines] == [entry["seq"] for entry in found.json()["items"]][::-1]


@pytest.mark.parametrize(
    "query",
    [
        "from=0001-01-01T00:00:00%2B14:00",
        "to=9999-12-31T23:59:59-14:00",
        "from=2026-11-21T12:00:00",
        "from_seq=0",
        "from_seq=2147483648",
        "actor=%00",
        "subject=%ED%A0%80",
    ],
)
async def test_a_query_that_no_database_takes_is_refused(service: RunningService, query: str) -> None:
    async with service.client() as client:
        answer = await client.get(f"/v1/audit?{query}")
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["path"] == f"query.{query.partition('=')[0]}"


async def test_the_export_has_every_entry_as_its_hash_covers_it(service: RunningService) -> None:
    count = 2 * EXPORTED_AT_ONCE + 1
    await write(service, *[("token:a", "isolation.keep-out", f"faults/isolation/nodes/{n}") for n in range(count)])
    async with service.client() as client:
        exported = await client.get("/v1/audit", headers=ACCEPT)
        checked = (await client.get("/v1/audit/check")).json()
    assert exported.headers["content-type"] == "application/x-ndjson"
    previous = GENESIS_HASH
    for line in exported.text.splitlines():
        entry = json.loads(line)
        assert line == canonical_json(entry)
        linked = entry.pop("hash")
        assert linked == sha256_hex(previous + canonical_json(entry))
        previous = linked
    assert checked["anchor"] == f"{checked['entries']}:{previous}"
    assert checked["entries"] >= count


async def test_a_check_begins_at_the_last_checkpoint_unless_it_is_full(
    service: RunningService, database_url: str
) -> None:
    await write(service, *[("token:a", "plan.created", f"plans/{n}") for n in range(5)])
    async with service.client() as client:
        first = await client.post("/v1/audit/checkpoints")
        second = await client.post("/v1/audit/checkpoints")
        listed = (await client.get("/v1/audit/checkpoints")).json()["items"]
        (audited,) = (await client.get("/v1/audit?limit=1")).json()["items"]
        tamper(database_url, "UPDATE audit SET actor = 'nobody' WHERE seq = 3")
        short = (await client.get("/v1/audit/check")).json()
        whole = (await client.get("/v1/audit/check?full=true")).json()
        anchored = (await client.get("/v1/audit/check", params={"anchor": first.json()["anchor"]})).json()
        forged = (await client.get("/v1/audit/check", params={"anchor": f"4:{'0' * 64}"})).json()
    assert first.status_code == second.status_code == 201
    assert second.json()["seq"] == first.json()["seq"] + 1
    assert listed == [second.json(), first.json()]
    assert (audited["action"], audited["subject"]) == ("audit.checkpointed", f"audit/{second.json()['seq']}")
    assert (short["intact"], short["checked_from_seq"]) == (True, second.json()["seq"] + 1)
    assert (whole["intact"], whole["first_broken_seq"], whole["checked_from_seq"]) == (False, 3, 1)
    assert (anchored["intact"], anchored["checked_from_seq"]) == (True, first.json()["seq"] + 1)
    assert (forged["intact"], forged["first_broken_seq"]) == (False, 4)


async def test_a_broken_chain_gets_no_checkpoint(service: RunningService, database_url: str) -> None:
    await write(service, *[("token:a", "plan.created", f"plans/{n}") for n in range(5)])
    tamper(database_url, "UPDATE audit SET actor = 'nobody' WHERE seq = 3")
    async with service.client() as client:
        refused = await client.post("/v1/audit/checkpoints")
        listed = (await client.get("/v1/audit/checkpoints")).json()["items"]
    assert (refused.status_code, listed) == (409, [])
    assert "broken at entry 3" in refused.json()["detail"]


async def test_checks_occupy_no_connection_of_the_api(
    start_service: StartService, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[str] = []

    def link_hash(previous: str, **_entry: object) -> str:
        # The request that waits for the check uses a connection for a moment, now and then; the check uses none.
        wait_for(lambda: parts.store.pool_usage().in_use == 0, what="free connections during a check")
        checked.append(previous)
        return ""

    monkeypatch.setattr("api.store.audit_chain.link_hash", link_hash)
    async with start_service(sqlite_url, with_worker=False) as service, service.client() as client:
        await service.first_token_stored()
        parts = service.app.state.service
        worker = asyncio.create_task(run_worker(service.app))  # with connections of its own
        assert not (await client.get("/v1/audit/check?full=true")).json()["intact"]
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
    assert len(checked) == 1


@pytest.mark.parametrize("scope", [TokenScope.READ, TokenScope.PLAN, TokenScope.OPERATE])
async def test_the_audit_needs_its_scope(sqlite_service: RunningService, scope: TokenScope) -> None:
    async with sqlite_service.client(scope) as client:
        answers = [await client.get(path) for path in ("/v1/audit", "/v1/audit/check", "/v1/audit/checkpoints")]
        answers.append(await client.post("/v1/audit/checkpoints"))
    assert [answer.status_code for answer in answers] == [403] * 4
