"""Answers that are written once and never changed: simulations of rows and plans of caps, simulations of faults.

All are a request, an answer and what a list shows of it, so that lists read none of the large columns.  Each room has a
table of its own.
"""

from typing import Any

from sqlalchemy import insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from api.store.records import AnswerHead, StoredAnswer
from api.store.tables import FaultAnswerRow, PowerRow

LARGE = frozenset({"request", "answer"})
Answers = type[PowerRow] | type[FaultAnswerRow]


class AnswerRepository:
    """Stored answers of a kind by id, newest first."""

    def __init__(self, connection: AsyncConnection, row: Answers) -> None:
        self._connection = connection
        self._row = row
        self._head = [column for column in row.__table__.columns if column.name not in LARGE]

    async def add(self, stored: StoredAnswer) -> None:
        """Store an answer under its new id."""
        head = {column.name: getattr(stored.head, column.name) for column in self._head}
        await self._connection.execute(insert(self._row).values(**head, request=stored.request, answer=stored.answer))

    async def get(self, *, kind: str, answer_id: str) -> StoredAnswer | None:
        """One answer."""
        query = select(self._row.__table__).where(self._row.kind == kind, self._row.id == answer_id)
        row = (await self._connection.execute(query)).one_or_none()
        return StoredAnswer(head=self._head_of(row), request=row.request, answer=row.answer) if row else None

    async def page(self, *, kind: str, before_id: str | None, limit: int) -> list[AnswerHead]:
        """The newest answers of a kind before an id."""
        query = select(*self._head).where(self._row.kind == kind).order_by(self._row.id.desc()).limit(limit)
        if before_id is not None:
            query = query.where(self._row.id < before_id)
        return [self._head_of(row) for row in await self._connection.execute(query)]

    def _head_of(self, row: Any) -> AnswerHead:
        return AnswerHead(**{column.name: getattr(row, column.name) for column in self._head})
