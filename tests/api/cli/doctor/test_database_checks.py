"""Checks of a database, on SQLite and PostgreSQL: what is wrong there is found and named."""

import asyncio
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from api.cli.doctor import database_checks
from api.cli.doctor.findings import Finding, Outcome
from api.server import Settings
from api.store import JobRecord, LeaseRecord, Migrations, NewAuditEntry, Store, TokenRecord, WorkerRecord
from tests.testbed.cli import Cli

pytestmark = pytest.mark.anyio

NOW = datetime.now(UTC)
ON_SQLITE = {"database-clock", "database-connections"}


async def checked(url: str, name: str, *, now: datetime = NOW) -> Finding:
    store = Store(url)
    try:
        return await database_checks.CHECKS[name](database_checks.Database(Settings(database_url=url), store, now))
    finally:
        await store.close()


async def test_a_fresh_database_has_only_what_is_missing(database_url: str) -> None:
    found = {name: (await checked(database_url, name)).outcome for name in database_checks.CHECKS}
    skipped = {name for name, outcome in found.items() if outcome is Outcome.SKIPPED}
    assert skipped == {"leases", *(ON_SQLITE if database_url.startswith("sqlite") else ())}
    assert {name for name, outcome in found.items() if outcome is Outcome.FAILURE} == {"workers"}
    assert {name for name, outcome in found.items() if outcome is Outcome.WARNING} == {"backup", "tokens"}


async def test_an_old_schema_is_a_failure(sqlite_url: str) -> None:
    await asyncio.to_thread(Migrations(sqlite_url).downgrade, "r0006")
    assert (await checked(sqlite_url, "database-schema")).outcome is Outcome.FAILURE


async def test_a_changed_entry_at_the_end_of_the_audit_is_found(sqlite_url: str) -> None:
    store = Store(sqlite_url)
    new = [
        NewAuditEntry(at=NOW, actor="a", action="plan.created", subject="s", detail={"n": n}, request_id=None)
        for n in range(1_500)
    ]
    async with store.transaction() as tx:
        await tx.audit.append_all(new)
    await store.close()
    intact = await checked(sqlite_url, "audit-chain")
    assert (intact.outcome, intact.detail) == (Outcome.OK, "entries 501 to 1,500 are intact")
    await asyncio.to_thread(_change_entry, sqlite_url, 1_400)
    broken = await checked(sqlite_url, "audit-chain")
    assert (broken.outcome, broken.detail) == (Outcome.FAILURE, "the chain is broken at entry 1,400")


async def test_a_backup_is_known_from_the_audit(
    sqlite_url: str, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEETWRIGHT_DATABASE_URL", sqlite_url)
    assert (await asyncio.to_thread(cli, "backup", tmp_path / "backup")).code == 0
    assert (await checked(sqlite_url, "backup", now=datetime.now(UTC))).outcome is Outcome.OK
    later = datetime.now(UTC) + timedelta(days=3)
    assert (await checked(sqlite_url, "backup", now=later)).outcome is Outcome.WARNING


async def test_workers_without_beats_and_long_queues_are_found(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_checks, "LOST_AFTER_S", 0.0)
    monkeypatch.setattr(database_checks, "POLL_S", 0.01)
    store = Store(sqlite_url)
    async with store.transaction() as tx:
        await tx.workers.put(WorkerRecord(id="w1", beats=1, started_at=NOW, version="0.2.0"))
        job = JobRecord(
            id="01a1fd26-439a-7ac2-acaa-525066f743ab",
            kind="plan",
            lane="safety",
            state="queued",
            project="default",
            created_at=NOW - timedelta(seconds=90),
            created_by="token:a",
            request_id=None,
            key=None,
            fingerprint=None,
            parent=None,
            subject=None,
            deadline_s=10.0,
        )
        await tx.jobs.add(job, request="{}")
    await store.close()
    lost = await checked(sqlite_url, "workers")
    assert (lost.outcome, lost.detail) == (Outcome.WARNING, "0 workers alive, 1 lost: w1")
    waiting = await checked(sqlite_url, "job-queue")
    assert (waiting.outcome, waiting.detail) == (
        Outcome.WARNING,
        "1 jobs of lane safety wait, the oldest for 90 s",
    )


async def test_an_expired_lease_is_a_warning(sqlite_url: str) -> None:
    store = Store(sqlite_url)
    async with store.transaction() as tx:
        held = LeaseRecord(name="controller", holder="c1", term=1, beats=4, lease_s=15.0, renewed_at=NOW)
        await tx.leases.put(held, after=None)
    await store.close()
    assert (await checked(sqlite_url, "leases", now=NOW + timedelta(seconds=10))).outcome is Outcome.OK
    assert (await checked(sqlite_url, "leases", now=NOW + timedelta(seconds=16))).outcome is Outcome.WARNING


async def test_admin_tokens_without_an_expiry_are_a_warning(sqlite_url: str) -> None:
    store = Store(sqlite_url)

    async def add(token_id: str, scope: str, *, expires: bool) -> None:
        record = TokenRecord(
            id=token_id,
            name="n",
            secret_sha256=b"secret-hash",
            scopes=frozenset({scope}),
            created_at=NOW,
            created_by="token:x",
            expires_at=NOW + timedelta(days=1) if expires else None,
            revoked_at=None,
        )
        async with store.transaction() as tx:
            await tx.tokens.add(record)

    await add("aaaaaaaaaaaa", "read", expires=False)
    await add("bbbbbbbbbbbb", "admin", expires=True)
    assert (await checked(sqlite_url, "tokens")).outcome is Outcome.OK
    await add("cccccccccccc", "admin", expires=False)
    found = await checked(sqlite_url, "tokens")
    assert (found.outcome, found.detail) == (
        Outcome.WARNING,
        "3 valid tokens, 2 with scope admin, 2 without an expiry",
    )
    await store.close()


def _change_entry(url: str, seq: int) -> None:
    with sqlite3.connect(url.removeprefix("sqlite+aiosqlite:///")) as database:
        for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            database.execute(f"DROP TRIGGER {name}")
        database.execute("UPDATE audit SET actor = 'other' WHERE seq = ?", (seq,))
