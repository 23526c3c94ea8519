"""Stores results: written once and never changed.

A row holds a request, its result, and the columns of a list as JSON, so that lists read neither of the large columns.
"""

from typing import Any

from sqlalchemy import insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from api.store.records import ResultSummary, StoredResult
from api.store.tables import ResultRow

TABLE = ResultRow.__table__
HEAD = [column for column in TABLE.columns if column.name not in {"request", "result"}]


class ResultRepository:
    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def add(self, stored: StoredResult) -> None:
        """Store a result under its new id."""
        head = {column.name: getattr(stored.head, column.name) for column in HEAD}
        await self._connection.execute(insert(ResultRow).values(**head, request=stored.request, result=stored.result))

    async def get(self, *, kind: str, result_id: str) -> StoredResult | None:
        query = select(TABLE).where(ResultRow.kind == kind, ResultRow.id == result_id)
        row = (await self._connection.execute(query)).one_or_none()
        return StoredResult(head=_head(row), request=row.request, result=row.result) if row is not None else None

    async def page(self, *, kind: str, before_id: str | None, limit: int) -> list[ResultSummary]:
        """Return the newest results of a kind before an id."""
        query = select(*HEAD).where(ResultRow.kind == kind).order_by(ResultRow.id.desc()).limit(limit)
        if before_id is not None:
            query = query.where(ResultRow.id < before_id)
        return [_head(row) for row in await self._connection.execute(query)]


def _head(row: Any) -> ResultSummary:
    return ResultSummary(**{column.name: getattr(row, column.name) for column in HEAD})
