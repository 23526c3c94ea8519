"""Placements: written once, read often, never changed.  Lists read none of the large columns."""

from typing import Any

from sqlalchemy import insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from api.store.records import PlacementHead, StoredPlacement
from api.store.tables import PlacementRow

TABLE = PlacementRow.__table__
HEAD = [column for column in TABLE.columns if column.name not in {"request", "answer"}]


class PlacementRepository:
    """Stored placements by id, newest first."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def add(self, placement: StoredPlacement) -> None:
        """Store a placement under its new id."""
        head = {column.name: getattr(placement.head, column.name) for column in HEAD}
        await self._connection.execute(
            insert(PlacementRow).values(**head, request=placement.request, answer=placement.answer)
        )

    async def get(self, placement_id: str) -> StoredPlacement | None:
        """One placement."""
        row = (await self._connection.execute(select(TABLE).where(PlacementRow.id == placement_id))).one_or_none()
        return StoredPlacement(head=_head(row), request=row.request, answer=row.answer) if row is not None else None

    async def page(self, *, before_id: str | None, limit: int) -> list[PlacementHead]:
        """The newest placements before an id."""
        query = select(*HEAD).order_by(PlacementRow.id.desc()).limit(limit)
        if before_id is not None:
            query = query.where(PlacementRow.id < before_id)
        return [_head(row) for row in await self._connection.execute(query)]


def _head(row: Any) -> PlacementHead:
    return PlacementHead(**{column.name: getattr(row, column.name) for column in HEAD})
