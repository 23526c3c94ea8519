"""Stores the audit chain: numbers without gaps, each entry bound to the previous one by SHA-256.

The head row stays locked for the rest of the transaction, so writers form a queue and an aborted write leaves no gap
(a database sequence would leave one).  Lock it last in a transaction: all writers share this lock.
"""

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

from sqlalchemy import insert, select, update

from api.store.canonical import canonical_json, sha256_hex
from api.store.records import AuditRecord
from api.store.repositories import Repository
from api.store.tables import AuditHeadRow, AuditRow

GENESIS_HASH = "0" * 64
HEAD_ID = 1
BATCH = 1000


class AuditRepository(Repository):
    async def append(
        self, *, at: datetime, actor: str, action: str, subject: str, detail: Mapping[str, Any], request_id: str | None
    ) -> AuditRecord:
        seq, previous = await self._head(lock=True)
        unsigned = AuditRecord(seq + 1, at, actor, action, subject, detail, request_id, hash="")
        entry = replace(unsigned, hash=link_hash(previous, unsigned))
        values = asdict(entry) | {"detail": canonical_json(detail)}
        await self._connection.execute(insert(AuditRow).values(**values))
        await self._connection.execute(
            update(AuditHeadRow).where(AuditHeadRow.id == HEAD_ID).values(seq=entry.seq, hash=entry.hash)
        )
        return entry

    async def lock(self) -> None:
        """Lock out every other writer until this transaction ends."""
        await self._head(lock=True)

    async def page(self, *, before_seq: int | None, limit: int) -> list[AuditRecord]:
        """Return the newest entries before a number."""
        query = select(AuditRow.__table__).order_by(AuditRow.seq.desc()).limit(limit)
        if before_seq is not None:
            query = query.where(AuditRow.seq < before_seq)
        return [_record(row) for row in await self._rows(query)]

    async def length(self) -> int:
        """Return the number of entries according to the head."""
        seq, _hash = await self._head()
        return seq

    async def first_broken(self) -> int | None:
        """Return the first number that is missing or whose hash does not follow; None for an intact chain."""
        head = await self._head()
        seq, previous = 0, GENESIS_HASH
        async for entry in self._all():
            seq += 1
            if entry.seq != seq or entry.hash != link_hash(previous, entry):
                return seq
            previous = entry.hash
        return None if head == (seq, previous) else seq + 1

    async def _head(self, *, lock: bool = False) -> tuple[int, str]:
        query = select(AuditHeadRow.seq, AuditHeadRow.hash).where(AuditHeadRow.id == HEAD_ID)
        row = (await self._connection.execute(query.with_for_update() if lock else query)).one()
        return row.seq, row.hash

    async def _all(self) -> AsyncIterator[AuditRecord]:
        """Iterate over every entry, oldest first, in batches: a chain may exceed the memory."""
        last = 0
        query = select(AuditRow.__table__).order_by(AuditRow.seq).limit(BATCH)
        while rows := await self._rows(query.where(AuditRow.seq > last)):
            for row in rows:
                yield _record(row)
            last = rows[-1]["seq"]


def link_hash(previous: str, entry: AuditRecord) -> str:
    """Hash the previous hash and every field of an entry with SHA-256."""
    content = asdict(entry) | {"at": entry.at.isoformat(timespec="microseconds")}
    del content["hash"]
    return sha256_hex(previous + canonical_json(content))


def _record(row: Mapping[str, Any]) -> AuditRecord:
    return AuditRecord(**{**row, "detail": json.loads(row["detail"])})
