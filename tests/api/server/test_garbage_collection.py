"""Retention: old rows go, named ones and the audit stay, and a database under constant traffic is bounded."""

import asyncio
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import insert, text

from api.server import Settings
from api.server.garbage_collection import LEASE, collect_garbage, retention_of, run_garbage_collection
from api.server.remediation import CASES
from api.store import (
    DiagnosisHead,
    LeaseRecord,
    LoopStatusRecord,
    NewReply,
    ResultSummary,
    StatusRecord,
    Store,
    StoredResult,
    TokenRecord,
    canonical_json,
    new_id,
)
from api.store.tables import JobRow, RateUsageRow, ResultLabelRow
from tests.testbed.service import RunningService

pytestmark = pytest.mark.anyio
NOW = datetime(2026, 11, 21, tzinfo=UTC)
COUNTED = ("documents", "results", "result_labels", "diagnoses", "jobs", "tokens", "leases", "replies", "write_probe")


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[Store]:
    store = Store(database_url)
    yield store
    await store.close()


class Traffic:
    """Writes what a day of use leaves behind."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.plans: list[str] = []

    async def day(self, now: datetime) -> None:
        async with self._store.transaction() as tx:
            for kind in ("plan", "power simulation"):
                head = ResultSummary(kind=kind, id=new_id(now), created_at=now, created_by="token:x", summary="{}")
                await tx.results.add(StoredResult(head=head, request="{}", result=canonical_json("r" * 20_000)))
                self.plans += [head.id] if kind == "plan" else []
                labels = {"result_id": head.id, "key": "team", "value": "a"}
                await tx._connection.execute(insert(ResultLabelRow).values(labels))
            diagnosis = new_id(now)
            await tx.diagnoses.add(
                DiagnosisHead(diagnosis, now, "x", "job", "crash", "node", now + timedelta(hours=1), "{}", "f" * 64),
                bundle=b"b" * 5_000,
            )
            await self._documents(tx, now, diagnosis)
            token_id = f"t{now:%Y%m%d}".ljust(12, "0")
            await tx.tokens.add(
                TokenRecord(token_id, "ci", b"", frozenset({"read"}), now, "token:x", now + timedelta(days=1), None)
            )
            await tx.leases.put(LeaseRecord(f"l{now:%Y%m%d}", "a", 1, 0, 15.0, renewed_at=now), after=None)
            reply = NewReply("token:x", f"{now:%Y%m%d}", "f", 201, {}, "{}", expires_at=now + timedelta(days=1))
            await tx._connection.execute(insert(JobRow).values(**job(now)))
            await tx.replies.save(reply, now=now - timedelta(days=400))  # which clears nothing
            await tx.write_probe.put(replica=f"{now:%Y%m%d}", at=now)
            usage = {"caller": "x", "replica": f"{now:%Y%m%d}", "spent": 1.0, "at": now}
            await tx._connection.execute(insert(RateUsageRow).values(usage))

    async def _documents(self, tx: Any, now: datetime, diagnosis: str) -> None:
        made = {"created_at": now, "created_by": "token:x"}
        case = {"node": "gpu-1", "diagnosis_id": diagnosis, "state": "serving", "stage": "replaced"}
        case |= {"since": now.isoformat(), "opened_at": now.isoformat()}
        await tx.documents.add_version(kind=CASES.kind, name=diagnosis, after=0, body=canonical_json(case), **made)
        head = await tx.documents.head(kind="power-budgets", name="row-1")
        after = head.version if head is not None else 0
        await tx.documents.add_version(kind="power-budgets", name="row-1", after=after, body="{}", **made)
        name = f"tree-{now:%Y%m%d}"
        await tx.documents.add_version(kind="power-trees", name=name, after=0, body="{}", **made)
        await tx.documents.add_version(kind="power-trees", name=name, after=1, body=None, **made)


def job(now: datetime) -> dict[str, Any]:
    return {
        "id": new_id(now),
        "kind": "plan",
        "lane": "work",
        "state": "succeeded",
        "project": "default",
        "created_at": now,
        "created_by": "token:x",
        "deadline_s": 60.0,
        "attempts": 1,
        "finished_at": now,
        "cancel_requested": False,
    }


async def collect(
    store: Store, now: datetime, *, dry_run: bool = False, settings: Settings | None = None
) -> Counter[str]:
    keep = retention_of(settings or Settings())
    total: Counter[str] = Counter()
    async for counts in collect_garbage(store, keep, now=lambda: now, dry_run=dry_run):
        assert sum(counts.values()) <= 2 * 200
        total.update(counts)
    return total


async def rows(store: Store) -> dict[str, int]:
    async with store.reading() as tx:
        return {
            table: (await tx._connection.execute(text(f"SELECT count(*) FROM {table}"))).scalar_one()  # noqa: S608
            for table in COUNTED
        }


SHORT = Settings(
    retention_plans_days=20,
    retention_simulations_days=5,
    retention_bundles_days=5,
    retention_diagnoses_days=20,
    retention_cases_days=10,
    retention_versions_days=10,
    retention_versions_count=5,
    retention_jobs_days=2,
    retention_tokens_days=5,
    retention_leases_days=5,
)


async def test_a_database_under_constant_traffic_is_bounded(store: Store, database_url: str) -> None:
    """The rows of two months are those of one; an SQLite file does not grow either."""
    traffic, sizes = Traffic(store), []
    for day in range(90):
        await traffic.day(NOW + timedelta(days=day))
        await collect(store, NOW + timedelta(days=day, minutes=1), settings=SHORT)
        if day in (44, 89):
            sizes.append((await rows(store), file_bytes(database_url)))
    (first, first_bytes), (second, second_bytes) = sizes
    assert first == second
    assert max(first.values()) < 60
    assert second_bytes <= 1.1 * first_bytes
    async with store.reading() as tx:
        assert await tx.audit.first_broken() is None
        (newest,) = await tx.audit.page(before_seq=None, limit=1)
    assert (newest.actor, newest.action) == ("system:gc", "gc.removed")


def file_bytes(database_url: str) -> int:
    """Return the size of an SQLite database; nothing for PostgreSQL, which reuses its pages by itself."""
    path = database_url.partition("///")[2]
    if not database_url.startswith("sqlite"):
        return 0
    with closing(sqlite3.connect(path)) as connection:
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    return int(pages * size)


async def test_every_kind_of_row_goes_at_its_age_and_a_dry_run_removes_none(store: Store) -> None:
    traffic = Traffic(store)
    for day in range(30):
        await traffic.day(NOW + timedelta(days=day))
    now, before = NOW + timedelta(days=30), await rows(store)
    counted = await collect(store, now, dry_run=True, settings=SHORT)
    assert await rows(store) == before
    removed = await collect(store, now, settings=SHORT)
    assert removed == {
        "plans": 10,
        "power-simulations": 25,
        "bundles": 20,
        "diagnoses": 10,
        "closed-cases": 20,
        "deleted-documents": 20,
        "versions": 20,
        "jobs": 28,
        "tokens": 24,
        "leases": 25,
        "replies": 30,
        "write-probes": 29,
        "rate-usage": 29,
    }
    # Cases still name their diagnoses when nothing is removed.
    assert counted == removed - Counter({"bundles": 20, "diagnoses": 10})
    left = await rows(store)
    assert (left["results"], left["result_labels"], left["diagnoses"]) == (25, 25, 20)


async def test_what_a_target_a_report_or_an_open_case_names_stays(store: Store) -> None:
    traffic = Traffic(store)
    for day in range(6):
        await traffic.day(NOW + timedelta(days=day))
    async with store.transaction() as tx:
        made: dict[str, Any] = {"created_at": NOW, "created_by": "token:x"}
        spec = canonical_json({"plan_id": traffic.plans[0], "a_field_of_a_newer_release": {"plan": traffic.plans[1]}})
        await tx.documents.add_version(kind="targets", name="chat", after=0, body=spec, **made)
        body = {"state": {"verified_plan_id": traffic.plans[2]}}
        await tx.statuses.put(StatusRecord(target="chat", reported_at=NOW, body=canonical_json(body)))
        loop = LoopStatusRecord("chat", NOW, "token:x", body=canonical_json({"plan_id": traffic.plans[3]}))
        await tx.loop_statuses.put(loop, state=canonical_json({"plan_id": traffic.plans[4]}))
        (diagnosis,) = await tx.diagnoses.page(before_id=None, limit=1)
        case = {"node": "gpu-1", "diagnosis_id": diagnosis.id, "state": "quarantined", "stage": "draining"}
        case |= {"since": NOW.isoformat(), "opened_at": NOW.isoformat()}
        await tx.documents.add_version(kind=CASES.kind, name="open", after=0, body=canonical_json(case), **made)
    await collect(store, NOW + timedelta(days=1000), settings=SHORT)
    async with store.reading() as tx:
        plans = await tx.results.page(kind="plan", before_id=None, limit=10)
        diagnoses = await tx.diagnoses.page(before_id=None, limit=10)
        assert await tx.diagnoses.bundle(diagnosis.id) == b"b" * 5_000
    assert [plan.id for plan in plans] == traffic.plans[4::-1]
    assert [each.id for each in diagnoses] == [diagnosis.id]


async def test_a_first_token_is_never_forgotten(store: Store) -> None:
    """The file of the operator may still hold it: it would be stored again, and valid."""
    async with store.transaction() as tx:
        for token_id, author in (("first0000000", "system:first-start"), ("other0000000", "token:x")):
            await tx.tokens.add(TokenRecord(token_id, "x", b"", frozenset({"admin"}), NOW, author, None, NOW))
    await collect(store, NOW + timedelta(days=1000))
    async with store.reading() as tx:
        assert [token.id for token in await tx.tokens.page(before_id=None, limit=9)] == ["first0000000"]


async def test_one_of_two_replicas_collects_once_per_interval(service: RunningService) -> None:
    parts, clock = service.app.state.service, service.clock
    await Traffic(parts.store).day(clock.now() - timedelta(days=5000))
    for _replica in range(2):
        await one_round(parts)
    clock.advance(3_601.0)
    await one_round(parts)
    text = parts.metrics.render().decode().splitlines()
    assert 'fleetwright_gc_runs_total{outcome="ok"} 2.0' in text
    assert 'fleetwright_gc_removed_total{kind="plans"} 1.0' in text
    async with service.client() as client:
        lease = (await client.get(f"/v1/leases/{LEASE}")).json()
    assert lease["term"] == 2


async def one_round(parts: Any) -> None:
    """Run the background work through its first delay."""
    delays: list[float] = []

    async def stopped_within(seconds: float) -> bool:
        delays.append(seconds)
        return len([delay for delay in delays if delay > 1.0]) > 1

    await asyncio.wait_for(run_garbage_collection(parts, stopped_within=stopped_within), 60.0)


async def test_a_plan_cannot_go_while_a_target_that_names_it_is_written(service: RunningService) -> None:
    """The write checks the plan under the lock that the removal holds."""
    parts = service.app.state.service
    traffic = Traffic(parts.store)
    await traffic.day(service.clock.now() - timedelta(days=1000))
    application = {"dashboard_url": "http://ray.invalid:8265", "application": "chat", "deployments": {"H100": "h100"}}
    spec = {"workload": "chat", "application": application, "plan_id": traffic.plans[0]}
    async with service.client() as client:
        put, _removed = await asyncio.gather(
            client.put("/v1/targets/chat", json=spec, headers={"If-None-Match": "*"}),
            collect(parts.store, service.clock.now()),
        )
        found = await client.get(f"/v1/plans/{traffic.plans[0]}")
    assert (put.status_code, found.status_code) in {(201, 200), (422, 404)}
