"""Stores leases, one row each, replaced in place: renewals are frequent, and only the last one matters."""

from typing import Any

from sqlalchemy import CursorResult, insert, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from api.store.errors import ConflictError
from api.store.records import LeaseRecord
from api.store.tables import LeaseRow

TABLE = LeaseRow.__table__


class LeaseRepository:
    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def get(self, name: str) -> LeaseRecord | None:
        """Return None for a lease that never had a holder."""
        row = (await self._connection.execute(select(TABLE).where(LeaseRow.name == name))).one_or_none()
        return _record(row) if row is not None else None

    async def page(self, *, after: str | None, limit: int) -> list[LeaseRecord]:
        rows = select(TABLE).order_by(LeaseRow.name).limit(limit)
        if after is not None:
            rows = rows.where(LeaseRow.name > after)
        return [_record(row) for row in await self._connection.execute(rows)]

    async def put(self, lease: LeaseRecord, *, after: LeaseRecord | None) -> None:
        """Replace a lease; ConflictError when the stored lease is not `after` any more."""
        values = {"holder": lease.holder, "term": lease.term, "beats": lease.beats, "lease_s": lease.lease_s}
        if after is None:
            try:
                await self._connection.execute(insert(LeaseRow).values(name=lease.name, **values))
            except IntegrityError as error:
                raise ConflictError(f"lease {lease.name!r} was taken at the same time") from error
            return
        expected = (LeaseRow.name == lease.name, LeaseRow.term == after.term, LeaseRow.beats == after.beats)
        done: CursorResult[Any] = await self._connection.execute(update(LeaseRow).where(*expected).values(**values))
        if done.rowcount != 1:
            raise ConflictError(f"lease {lease.name!r} was changed at the same time")


def _record(row: Any) -> LeaseRecord:
    return LeaseRecord(name=row.name, holder=row.holder, term=row.term, beats=row.beats, lease_s=row.lease_s)
