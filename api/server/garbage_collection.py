"""Removes what the operator keeps no longer: from time to time in one of the replicas, and for `fleetwright gc`."""

import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

import structlog

from api.jobs.results import KINDS
from api.schemas.faults import FAULT_SIMULATIONS
from api.schemas.power import POWER_SIMULATIONS
from api.schemas.remediation import CaseSpec
from api.server.database_health import replica_name
from api.server.remediation import CASES
from api.server.service import Service
from api.server.settings import Settings
from api.server.tokens import FIRST_START
from api.store import Batch, ConflictError, LeaseRecord, Retention, Store, StoreError, Transaction, rules
from fleet.documents import read_stored

ACTOR: Final = "system:gc"
LEASE: Final = "garbage-collection"
CLOSED_CASES: Final = "closed-cases"
DELETED_DOCUMENTS: Final = "deleted-documents"
VERSIONS: Final = "versions"
FIRST_DELAY_S: Final = 60.0  # a service that has just started has other work
FIRST_BATCH: Final = 20  # rows; a result may have megabytes
MAX_BATCH: Final = 200
MAX_BATCH_S: Final = 0.2  # every writer waits for so long
PAUSE_S: Final = 0.05  # between batches, for the other writers
PAGES_AT_ONCE: Final = 500
MAX_LEASE_S: Final = 3_600.0  # of `/v1/leases`
SIMULATIONS: Final = frozenset({POWER_SIMULATIONS.name, FAULT_SIMULATIONS.name})

log = structlog.get_logger(__name__)


def retention_of(settings: Settings) -> Retention:
    days = {kind.type.name: settings.retention_plans_days for kind in KINDS}
    days |= dict.fromkeys(SIMULATIONS, settings.retention_simulations_days)
    return Retention(
        results={kind: timedelta(days=each) for kind, each in days.items()},
        bundles=timedelta(days=settings.retention_bundles_days),
        diagnoses=timedelta(days=settings.retention_diagnoses_days),
        cases=timedelta(days=settings.retention_cases_days),
        versions=timedelta(days=settings.retention_versions_days),
        versions_count=settings.retention_versions_count,
        jobs=max(timedelta(days=settings.retention_jobs_days), timedelta(seconds=settings.idempotency_ttl_s)),
        tokens=timedelta(days=settings.retention_tokens_days),
        leases=timedelta(days=settings.retention_leases_days),
        kept_token_makers=frozenset({FIRST_START}),
        case_kind=CASES.kind,
        is_closed=lambda body: not read_stored(CaseSpec, body).open,
    )


@dataclass(frozen=True, slots=True)
class _Removal:
    """Is one batch, by the names of what it removed."""

    counts: Mapping[str, int]
    after: tuple[Any, ...] | None
    audited: bool = True


_Step = Callable[[Transaction, tuple[Any, ...] | None, int], Awaitable[_Removal]]


async def collect_garbage(
    store: Store, keep: Retention, *, now: Callable[[], datetime], actor: str = ACTOR, dry_run: bool = False
) -> AsyncIterator[Mapping[str, int]]:
    """Remove batch after batch, and yield how many rows of each name it removed; `dry_run` counts them only."""
    at = now()
    for step in await _steps(store, keep, now=at, dry_run=dry_run):
        after: tuple[Any, ...] | None = None
        limit = FIRST_BATCH
        while True:
            started_s = time.monotonic()
            async with store.reading() if dry_run else store.transaction() as tx:
                if not dry_run:
                    await tx.audit.lock()
                done = await step(tx, after, limit)
                counts = {name: count for name, count in done.counts.items() if count}
                if counts and done.audited and not dry_run:
                    await tx.audit.append(
                        at=now(), actor=actor, action="gc.removed", subject="gc", detail=counts, request_id=None
                    )
            if counts:
                yield counts
            if (after := done.after) is None:
                break
            is_slow = time.monotonic() - started_s > MAX_BATCH_S
            limit = max(1, limit // 2) if is_slow else min(MAX_BATCH, limit * 2)
    if not dry_run:
        await _reclaim(store)


async def _steps(store: Store, keep: Retention, *, now: datetime, dry_run: bool) -> list[_Step]:
    """Closed cases go first: the diagnoses that they name may go after them."""
    async with store.reading() as tx:
        histories = await tx.retention.long_histories(keep)

    async def documents(tx: Transaction, after: tuple[Any, ...] | None, limit: int) -> _Removal:
        closed, deleted = await tx.retention.remove_documents(keep, now=now, after=after, limit=limit, dry_run=dry_run)
        return _Removal({CLOSED_CASES: closed.removed, DELETED_DOCUMENTS: deleted.removed}, closed.after)

    async def versions(
        document: tuple[str, str, int], tx: Transaction, after: tuple[Any, ...] | None, limit: int
    ) -> _Removal:
        done = await tx.retention.remove_versions(
            keep, document, now=now, after=after[0] if after is not None else -1, limit=limit, dry_run=dry_run
        )
        return _Removal({VERSIONS: done.removed}, done.after)

    async def rows(rule: Any, tx: Transaction, after: tuple[Any, ...] | None, limit: int) -> _Removal:
        done: Batch = await tx.retention.remove(rule, keep, now=now, after=after, limit=limit, dry_run=dry_run)
        return _Removal({rule.name: done.removed}, done.after, audited=rule.audited)

    return [
        *(partial(versions, history) for history in histories),
        documents,
        *(partial(rows, rule) for rule in rules(keep)),
    ]


async def _reclaim(store: Store) -> None:
    left = 1
    while left:
        async with store.transaction() as tx:
            left = await tx.retention.reclaim(pages=PAGES_AT_ONCE)


async def run_garbage_collection(service: Service, *, stopped_within: Callable[[float], Awaitable[bool]]) -> None:
    """Collect once per interval, in whichever replica is first."""
    keep = retention_of(service.settings)
    names = (CLOSED_CASES, DELETED_DOCUMENTS, VERSIONS, *(rule.name for rule in rules(keep)))
    service.metrics.observe_removed(dict.fromkeys(names, 0))  # so that the first removal is an increase
    delay_s = FIRST_DELAY_S
    while not await stopped_within(delay_s):
        delay_s = float(min(600, service.settings.retention_interval_s))
        try:
            if await _is_mine(service):
                await _collect(service, keep, stopped_within=stopped_within)
        except StoreError as error:
            log.warning("garbage_collection_failed", reason=str(error))
            service.metrics.observe_garbage_collection("failed")
        except Exception:  # the service serves on; the next interval tries again
            log.exception("garbage_collection_failed")
            service.metrics.observe_garbage_collection("failed")


async def _collect(service: Service, keep: Retention, *, stopped_within: Callable[[float], Awaitable[bool]]) -> None:
    total: Counter[str] = Counter()
    async for counts in collect_garbage(service.store, keep, now=service.now):
        total.update(counts)
        service.metrics.observe_removed(counts)
        if await stopped_within(PAUSE_S):
            return
    service.metrics.observe_garbage_collection("ok")
    if total:
        log.info("garbage_collected", **{name.replace("-", "_"): count for name, count in total.items()})


async def _is_mine(service: Service) -> bool:
    """Take the lease of this interval.  It needs no renewal: two collections at once remove nothing twice."""
    now, interval_s = service.now(), float(service.settings.retention_interval_s)
    try:
        async with service.store.transaction() as tx:
            if not service.supports_schema(await tx.schema_revision()):
                return False
            before = await tx.leases.get(LEASE)
            begun = before.renewed_at if before is not None else None
            if begun is not None and abs((now - begun).total_seconds()) < interval_s:
                return False
            term = before.term + 1 if before is not None else 1
            mine = LeaseRecord(
                name=LEASE,
                holder=replica_name(),
                term=term,
                beats=0,
                lease_s=min(interval_s, MAX_LEASE_S),
                renewed_at=now,
            )
            await tx.leases.put(mine, after=before)
    except ConflictError:
        return False
    return True
