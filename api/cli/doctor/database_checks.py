"""Checks the database of the settings, and what the processes that use it have written there."""

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from api.cli.doctor.findings import Check, Finding, failure, ok, skipped, warning
from api.jobs.lost_workers import LOST_AFTER_S, WorkerWatch
from api.schemas.jobs import JobState, Lane
from api.schemas.leases import CONTROLLER_LEASE, REMEDIATION_LEASE
from api.schemas.tokens import TokenScope
from api.server import Settings
from api.server.database_health import PROBE_INTERVAL_S, replica_name
from api.server.garbage_collection import LEASE as GC_LEASE
from api.server.garbage_collection import collect_garbage, retention_of
from api.store import (
    CONNECTIONS_PER_PROCESS,
    AuditFilter,
    ChainPlace,
    Migrations,
    Store,
    TokenRecord,
    check_chain,
)

BACKED_UP: Final = "database.backed-up"
CLOCK_WARNING_S: Final = 2.0
CLOCK_FAILURE_S: Final = 30.0
AUDIT_ENTRIES: Final = 1_000  # the last ones are checked
BACKUP_WARNING: Final = timedelta(days=2)
ADMIN_TOKENS: Final = 5
WAIT_WARNING_S: Final[Mapping[str, float]] = {Lane.WORK.value: 600.0}  # as the alert FleetwrightJobsWait
OTHER_WAIT_WARNING_S: Final = 60.0
POLL_S: Final = 0.6
PAGE: Final = 200


@dataclass(frozen=True, slots=True)
class Database:
    settings: Settings
    store: Store
    now: datetime

    @property
    def url(self) -> str:
        return self.settings.database_url.get_secret_value()


async def schema(database: Database) -> Finding:
    """Compare the revision of the schema with the one that this program needs."""
    head = Migrations(database.url).head
    async with database.store.reading() as tx:
        revision = await tx.schema_revision()
    if revision == head:
        return ok(f"the schema is at {revision}, as this program needs it")
    detail = f"the schema is at {revision or 'nothing'}, this program needs {head}"
    if revision is not None and revision > head:
        return warning(detail, repair="install the release that migrated the database")
    return failure(detail, repair="run `fleetwright migrate up`")


async def writable(database: Database) -> Finding:
    """Write a row that only this check uses."""
    started_s = time.monotonic()
    async with database.store.transaction() as tx:
        await tx.write_probe.put(replica=f"doctor-{replica_name()}"[:63], at=database.now)
    return ok(f"a write took {(time.monotonic() - started_s) * 1000:,.1f} ms")


async def clock(database: Database) -> Finding:
    """Compare the clock of the database server with this machine's."""
    async with database.store.reading(single=True) as tx:
        before_s = time.time()
        found = await tx.inspection.clock()
        middle_s = (before_s + time.time()) / 2
    if found is None:
        return skipped("SQLite has no clock of its own")
    offset_s = found.timestamp() - middle_s
    detail = f"the clock of the database is {offset_s:+,.3f} s from this machine's"
    repair = "synchronise both clocks (chrony, systemd-timesyncd)"
    if abs(offset_s) > CLOCK_FAILURE_S:
        return failure(detail, repair=repair)
    return warning(detail, repair=repair) if abs(offset_s) > CLOCK_WARNING_S else ok(detail)


async def connections(database: Database) -> Finding:
    """Compare the connections of all processes with what the database server grants."""
    async with database.store.reading() as tx:
        limit = await tx.inspection.connection_limit()
        recent = database.now - timedelta(seconds=6 * PROBE_INTERVAL_S)
        replicas = [name for name in await tx.inspection.replicas(since=recent) if not name.startswith("doctor-")]
        workers = len(await tx.workers.all())
    if limit is None:
        return skipped("SQLite has no limit of connections")
    processes = max(1, len(replicas) + workers)
    detail = (
        f"{processes} processes with at most {CONNECTIONS_PER_PROCESS} connections each, the server grants {limit:,}"
    )
    if processes * CONNECTIONS_PER_PROCESS <= limit:
        return ok(detail)
    return warning(detail, repair="raise max_connections, put PgBouncer before it, or run fewer replicas and workers")


async def audit_chain(database: Database) -> Finding:
    """Verify the last entries of the audit chain."""
    async with database.store.reading() as tx:
        head = await tx.audit.head()
        first = max(0, head.seq - AUDIT_ENTRIES)
        anchored = await tx.audit.as_written(after_seq=first - 1, limit=1) if first else []
    anchor = ChainPlace(first, anchored[0]["hash"]) if anchored else None
    found = await asyncio.to_thread(check_chain, database.url, full=anchor is None, anchor=anchor)
    if found.intact:
        return ok(f"entries {found.checked_from_seq:,} to {found.head.seq:,} are intact")
    return failure(
        f"the chain is broken at entry {found.first_broken_seq:,}",
        repair="run `fleetwright audit check --full`, and compare with an anchor that you keep elsewhere",
    )


async def backup(database: Database) -> Finding:
    """Read from the audit when `fleetwright backup` ran last."""
    async with database.store.reading() as tx:
        found = await tx.audit.page(before_seq=None, limit=1, chosen=AuditFilter(actions=(BACKED_UP,)))
    if not found:
        return warning(
            "no `fleetwright backup` is recorded", repair="schedule `fleetwright backup`, or backups of the server"
        )
    age = database.now - found[0].at
    detail = f"the last backup is {age.total_seconds() / 3600:,.1f} hours old"
    return ok(detail) if age < BACKUP_WARNING else warning(detail, repair="schedule `fleetwright backup`")


async def retention(database: Database) -> Finding:
    """Check that the service removes old rows."""
    async with database.store.reading() as tx:
        lease = await tx.leases.get(GC_LEASE)
    due: Counter[str] = Counter()
    day_ago = database.now - timedelta(days=1)
    async for counts in collect_garbage(
        database.store, retention_of(database.settings), now=lambda: day_ago, dry_run=True
    ):
        due.update(counts)
    last = lease.renewed_at if lease is not None else None
    ran = f"removals ran last at {last:%Y-%m-%d %H:%M}Z" if last is not None else "no removal has run"
    if not due:
        return ok(f"{ran}; no row is overdue")
    return warning(
        f"{ran}; {due.total():,} rows should have gone a day ago",
        repair="check the log of `fleetwright serve` for garbage_collection_failed, or run `fleetwright gc`",
    )


async def workers(database: Database) -> Finding:
    """Observe the beats of all workers until each has had one, at most as long as a lost worker takes."""
    watch, started_s = WorkerWatch(own_id=""), time.monotonic()
    async with database.store.reading() as tx:
        first = {worker.id: worker.beats for worker in await tx.workers.all()}
        orphans = await tx.jobs.orphan_workers()
    still = dict(first)
    while still and time.monotonic() - started_s <= LOST_AFTER_S + POLL_S:
        await asyncio.sleep(POLL_S)
        async with database.store.reading() as tx:
            now = await tx.workers.all()
        watch.lost(now, orphans=(), now_s=time.monotonic())
        still = {worker.id: worker.beats for worker in now if first.get(worker.id) == worker.beats}
    alive = len(first) - len(still)
    if still or orphans:
        lost = f"{len(still) + len(orphans)} lost: {', '.join(sorted([*still, *orphans])[:5])}"
        return warning(f"{alive} workers alive, {lost}", repair="another worker takes their jobs over; read their logs")
    if not alive:
        return failure("no worker is alive", repair="start `fleetwright worker`, or `fleetwright serve --worker`")
    return ok(f"{alive} workers alive")


async def queue(database: Database) -> Finding:
    """Check how long the oldest job of each lane waits."""
    async with database.store.reading() as tx:
        waiting = [count for count in await tx.jobs.counts() if count.state == JobState.QUEUED]
    if not waiting:
        return ok("no job waits")
    ages = {
        count.lane: (database.now - count.oldest).total_seconds() if count.oldest is not None else 0.0
        for count in waiting
    }
    detail = ", ".join(
        f"{count.jobs:,} jobs of lane {count.lane} wait, the oldest for {max(0.0, ages[count.lane]):,.0f} s"
        for count in waiting
    )
    if any(age_s > WAIT_WARNING_S.get(lane, OTHER_WAIT_WARNING_S) for lane, age_s in ages.items()):
        return warning(detail, repair="add workers, or slots (FLEETWRIGHT_PLAN_CONCURRENCY)")
    return ok(detail)


async def leases(database: Database) -> Finding:
    """Check that the holders of the leases of controllers renew them."""
    async with database.store.reading() as tx:
        found = [await tx.leases.get(name) for name in (CONTROLLER_LEASE, REMEDIATION_LEASE)]
    held = [lease for lease in found if lease is not None and lease.holder is not None and lease.renewed_at is not None]
    if not held:
        return skipped("no controller holds a lease")
    ages = {
        lease.name: (database.now - lease.renewed_at).total_seconds() for lease in held if lease.renewed_at is not None
    }
    detail = ", ".join(f"{name} was renewed {max(0.0, age_s):,.0f} s ago" for name, age_s in ages.items())
    if any(ages[lease.name] > lease.lease_s for lease in held):
        return warning(detail, repair="start the controller again, or read its log; its lease has expired")
    return ok(detail)


async def tokens(database: Database) -> Finding:
    """Count valid tokens that never expire, and those with every right."""
    valid = [token for token in await _tokens(database.store) if token.is_valid(database.now) and token.parent is None]
    admins = [token for token in valid if TokenScope.ADMIN.value in token.scopes]
    endless = [token for token in valid if token.expires_at is None]
    detail = f"{len(valid)} valid tokens, {len(admins)} with scope admin, {len(endless)} without an expiry"
    if not valid:
        return warning(
            "no token is valid",
            repair="set FLEETWRIGHT_BOOTSTRAP_TOKEN_FILE, or start with a new database",
        )
    if len(admins) > ADMIN_TOKENS or any(token in endless for token in admins):
        return warning(
            detail,
            repair="create tokens with fewer scopes and `--expires-in-s`, then `fleetwright tokens revoke` the others",
        )
    return ok(detail)


async def _tokens(store: Store) -> list[TokenRecord]:
    found: list[TokenRecord] = []
    before: str | None = None
    while True:
        async with store.reading() as tx:
            page = await tx.tokens.page(before_id=before, limit=PAGE)
        found += page
        if len(page) < PAGE:
            return found
        before = page[-1].id


CHECKS: Mapping[str, Check[Database]] = {
    "database-schema": schema,
    "database-writable": writable,
    "database-clock": clock,
    "database-connections": connections,
    "audit-chain": audit_chain,
    "backup": backup,
    "retention": retention,
    "workers": workers,
    "job-queue": queue,
    "leases": leases,
    "tokens": tokens,
}
