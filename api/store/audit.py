"""Stores the audit chain: numbers without gaps, each entry bound to the previous one by SHA-256.

The head row stays locked for the rest of the transaction, so writers form a queue and an aborted write leaves no gap
(a database sequence would leave one).  Lock it last in a transaction: all writers share this lock.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Select, bindparam, func, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from api.store.audit_chain import ENTRY_COLUMNS, HEAD_ID, ChainPlace, check_connection, link_hash
from api.store.canonical import canonical_json
from api.store.records import AuditRecord, ChangeRecord, CheckpointRecord, NewAuditEntry
from api.store.repositories import Repository
from api.store.tables import AuditCheckpointRow, AuditHeadRow, AuditRow

ROW_LOCK_TIMEOUT_MS = 200  # PostgreSQL looks for deadlocks after a second


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilter:
    """Selects entries; what is not set selects all."""

    since: datetime | None = None
    before: datetime | None = None
    from_seq: int | None = None
    to_seq: int | None = None
    actor: str | None = None
    actions: Sequence[str] = ()  # any of these
    subjects: Sequence[str] = ()  # begins with any of these


ALL_ENTRIES = AuditFilter()

# Built once: every write runs them.
_HEAD: Final = select(AuditHeadRow.seq, AuditHeadRow.hash).where(AuditHeadRow.id == HEAD_ID)
_LOCK_HEAD: Final = f"SELECT seq, hash FROM {AuditHeadRow.__tablename__} WHERE id = {HEAD_ID} FOR UPDATE"  # noqa: S608 - constants
_INSERT: Final = insert(AuditRow)
_SET_HEAD: Final = (
    update(AuditHeadRow).where(AuditHeadRow.id == HEAD_ID).values(seq=bindparam("new_seq"), hash=bindparam("new_hash"))
)


class AuditRepository(Repository):
    """Keeps the chain.  `observe_lock_wait_s` receives how long a lock of its head took."""

    def __init__(
        self, connection: AsyncConnection, observe_lock_wait_s: Callable[[str, float], None] | None = None
    ) -> None:
        super().__init__(connection)
        self._observe_lock_wait_s = observe_lock_wait_s
        self._head: ChainPlace | None = None  # once this transaction has locked it

    async def append(
        self,
        *,
        at: datetime,
        actor: str,
        action: str,
        subject: str,
        detail: Mapping[str, Any],
        request_id: str | None,
        project: str | None = None,
    ) -> AuditRecord:
        new = NewAuditEntry(
            at=at,
            actor=actor,
            action=action,
            subject=subject,
            detail=detail,
            request_id=request_id,
            project=project,
        )
        (entry,) = await self.append_all([new])
        return entry

    async def append_all(self, new: Sequence[NewAuditEntry]) -> list[AuditRecord]:
        """Append entries in their order, with one lock of the head."""
        head = await self._locked()
        linked = head.hash
        entries: list[AuditRecord] = []
        rows: list[dict[str, Any]] = []
        for seq, each in enumerate(new, start=head.seq + 1):
            values = asdict(each) | {"seq": seq}
            detail, project = values.pop("detail"), values.pop("project")
            detail_json = canonical_json(detail)
            linked = link_hash(linked, detail_json=detail_json, **values)
            rows.append(values | {"detail": detail_json, "hash": linked, "project": project})
            entries.append(AuditRecord(**values, detail=detail, hash=linked))
        await self._connection.execute(_INSERT, rows)
        self._head = ChainPlace(rows[-1]["seq"], linked)
        await self._connection.execute(_SET_HEAD, {"new_seq": self._head.seq, "new_hash": self._head.hash})
        return entries

    async def lock(self) -> None:
        """Lock out every other writer until this transaction ends.

        Other rows are then free, unless a replica of release 0.2.0 holds one while it waits for the audit.  A short
        lock timeout ends this transaction, which runs again, before the database detects a deadlock and ends either.
        """
        await self._locked()

    async def page(self, *, before_seq: int | None, limit: int, chosen: AuditFilter = ALL_ENTRIES) -> list[AuditRecord]:
        """Return the newest of the chosen entries before a number."""
        query = _chosen(chosen).order_by(AuditRow.seq.desc()).limit(limit)
        if before_seq is not None:
            query = query.where(AuditRow.seq < before_seq)
        return [AuditRecord(**{**row, "detail": json.loads(row["detail"])}) for row in await self._rows(query)]

    async def as_written(
        self, *, after_seq: int, limit: int, chosen: AuditFilter = ALL_ENTRIES
    ) -> list[dict[str, Any]]:
        """Return the oldest of the chosen entries after a number, with their details as JSON."""
        query = _chosen(chosen).where(AuditRow.seq > after_seq).order_by(AuditRow.seq).limit(limit)
        return await self._rows(query)

    async def changes(self, *, after_seq: int, limit: int) -> list[ChangeRecord]:
        """Return the oldest entries after a number, without their details."""
        columns = (AuditRow.seq, AuditRow.at, AuditRow.action, AuditRow.subject, AuditRow.project)
        query = select(*columns).where(AuditRow.seq > after_seq).order_by(AuditRow.seq).limit(limit)
        return [ChangeRecord(**row) for row in await self._rows(query)]

    async def first(self) -> int | None:
        """Return the number of the oldest entry: 1, unless someone removed entries."""
        row = await self._row(select(func.min(AuditRow.seq).label("seq")))
        return row["seq"] if row is not None else None

    async def length(self) -> int:
        """Return the number of entries according to the head."""
        return (await self.head()).seq

    async def first_broken(self) -> int | None:
        """Return the first number that is missing or whose hash does not follow; None for an intact chain."""
        return await self._connection.run_sync(
            lambda connection: check_connection(connection, full=True).first_broken_seq
        )

    async def head(self) -> ChainPlace:
        """Return the end of the chain."""
        row = (await self._connection.execute(_HEAD)).one()
        return ChainPlace(row.seq, row.hash)

    async def _locked(self) -> ChainPlace:
        """Return the end of the chain, which this transaction alone may change until it ends."""
        if self._head is None:
            started_s = time.monotonic()
            if self._connection.dialect.name == "postgresql":  # in one round trip: all other writers wait from here on
                limit = f"SET LOCAL lock_timeout = {ROW_LOCK_TIMEOUT_MS}"
                found = await self._connection.exec_driver_sql(f"{_LOCK_HEAD}; {limit}")
            else:  # the transaction holds the lock of the database already
                found = await self._connection.execute(_HEAD)
            row = found.one()
            self._head = ChainPlace(row.seq, row.hash)
            if self._observe_lock_wait_s is not None:
                self._observe_lock_wait_s("audit", time.monotonic() - started_s)
        return self._head

    async def add_checkpoint(self, checkpoint: CheckpointRecord) -> None:
        """Keep a place up to which a check found the chain intact; one that is known stays as it is."""
        if await self._row(select(AuditCheckpointRow.seq).where(AuditCheckpointRow.seq == checkpoint.seq)) is None:
            await self._connection.execute(insert(AuditCheckpointRow).values(**asdict(checkpoint)))

    async def checkpoints(self, *, before_seq: int | None, limit: int) -> list[CheckpointRecord]:
        """Return the newest checkpoints before a number."""
        query = select(AuditCheckpointRow.__table__).order_by(AuditCheckpointRow.seq.desc()).limit(limit)
        if before_seq is not None:
            query = query.where(AuditCheckpointRow.seq < before_seq)
        return [CheckpointRecord(**row) for row in await self._rows(query)]


def _chosen(chosen: AuditFilter) -> Select[Any]:
    conditions = [
        *([AuditRow.at >= chosen.since] if chosen.since is not None else []),
        *([AuditRow.at < chosen.before] if chosen.before is not None else []),
        *([AuditRow.seq >= chosen.from_seq] if chosen.from_seq is not None else []),
        *([AuditRow.seq <= chosen.to_seq] if chosen.to_seq is not None else []),
        *([AuditRow.actor == chosen.actor] if chosen.actor is not None else []),
        *([AuditRow.action.in_(chosen.actions)] if chosen.actions else []),
    ]
    if chosen.subjects:  # compared by characters: LIKE ignores case on SQLite, and an order depends on the collation
        starts = [func.substr(AuditRow.subject, 1, len(prefix)) == prefix for prefix in chosen.subjects]
        conditions.append(or_(*starts))
    return select(*ENTRY_COLUMNS).where(*conditions)
