"""Answers about power: simulations of rows and plans of caps, written once, never changed.

Both are a request, an answer and what a list shows of it, so that lists read none of the large columns.
"""

from typing import Any

from sqlalchemy import insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from api.store.records import PowerHead, StoredPower
from api.store.tables import PowerRow

TABLE = PowerRow.__table__
HEAD = [column for column in TABLE.columns if column.name not in {"request", "answer"}]


class PowerRepository:
    """Stored answers of a kind by id, newest first."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def add(self, stored: StoredPower) -> None:
        """Store an answer under its new id."""
        head = {column.name: getattr(stored.head, column.name) for column in HEAD}
        await self._connection.execute(insert(PowerRow).values(**head, request=stored.request, answer=stored.answer))

    async def get(self, *, kind: str, answer_id: str) -> StoredPower | None:
        """One answer."""
        query = select(TABLE).where(PowerRow.kind == kind, PowerRow.id == answer_id)
        row = (await self._connection.execute(query)).one_or_none()
        return StoredPower(head=_head(row), request=row.request, answer=row.answer) if row is not None else None

    async def page(self, *, kind: str, before_id: str | None, limit: int) -> list[PowerHead]:
        """The newest answers of a kind before an id."""
        query = select(*HEAD).where(PowerRow.kind == kind).order_by(PowerRow.id.desc()).limit(limit)
        if before_id is not None:
            query = query.where(PowerRow.id < before_id)
        return [_head(row) for row in await self._connection.execute(query)]


def _head(row: Any) -> PowerHead:
    return PowerHead(**{column.name: getattr(row, column.name) for column in HEAD})
