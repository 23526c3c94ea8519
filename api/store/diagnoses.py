"""Verdicts as reported: written once with the bundle that proves them.  Only how long they are believed can change."""

from datetime import datetime
from typing import Any

from sqlalchemy import insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from api.store.records import VerdictHead
from api.store.tables import VerdictRow

HEAD = [column for column in VerdictRow.__table__.columns if column.name != "bundle"]


class VerdictRepository:
    """Stored verdicts by id, newest first.  No list reads a bundle."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def add(self, head: VerdictHead, *, bundle: bytes | None) -> None:
        """Store a verdict under its new id; `bundle` is compressed."""
        values = {column.name: getattr(head, column.name) for column in HEAD}
        await self._connection.execute(insert(VerdictRow).values(**values, bundle=bundle))

    async def get(self, verdict_id: str) -> VerdictHead | None:
        """One verdict without its bundle."""
        row = (await self._connection.execute(select(*HEAD).where(VerdictRow.id == verdict_id))).one_or_none()
        return _head(row) if row is not None else None

    async def bundle(self, verdict_id: str) -> bytes | None:
        """The compressed bundle of a verdict, where there is one."""
        query = select(VerdictRow.__table__.c.bundle).where(VerdictRow.id == verdict_id)
        found: bytes | None = (await self._connection.execute(query)).scalar_one_or_none()
        return found

    async def page(self, *, before_id: str | None, limit: int) -> list[VerdictHead]:
        """The newest verdicts before an id."""
        query = select(*HEAD).order_by(VerdictRow.id.desc()).limit(limit)
        if before_id is not None:
            query = query.where(VerdictRow.id < before_id)
        return [_head(row) for row in await self._connection.execute(query)]

    async def believed(self, *, now: datetime, limit: int) -> list[VerdictHead]:
        """The newest of those that are believed now."""
        query = select(*HEAD).where(VerdictRow.believed_until > now).order_by(VerdictRow.id.desc()).limit(limit)
        return [_head(row) for row in await self._connection.execute(query)]

    async def believe(self, verdict_id: str, *, until: datetime) -> None:
        """Believe a verdict until then."""
        await self._connection.execute(
            update(VerdictRow).where(VerdictRow.id == verdict_id).values(believed_until=until)
        )


def _head(row: Any) -> VerdictHead:
    return VerdictHead(**{column.name: getattr(row, column.name) for column in HEAD})
