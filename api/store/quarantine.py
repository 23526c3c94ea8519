"""Stores the state of the quarantine policy in one row: evaluations are frequent, and only the last state matters."""

from typing import Any

from sqlalchemy import select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from api.store.records import QuarantineRecord
from api.store.tables import QuarantineRow

ONLY_ID = 1


class QuarantineRepository:
    """Reads and replaces the only row."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def get(self) -> QuarantineRecord | None:
        """Return None before the first evaluation."""
        row = (await self._connection.execute(select(QuarantineRow.__table__))).one_or_none()
        return QuarantineRecord(row.evaluated_at, row.evaluated_by, row.body) if row is not None else None

    async def put(self, record: QuarantineRecord) -> None:
        """Replace the state.  The caller has held the audit lock since it read the row."""
        on_postgresql = self._connection.dialect.name == "postgresql"
        insert: Any = postgresql.insert if on_postgresql else sqlite.insert
        values = {"evaluated_at": record.evaluated_at, "evaluated_by": record.evaluated_by, "body": record.body}
        await self._connection.execute(
            insert(QuarantineRow).values(id=ONLY_ID, **values).on_conflict_do_update(index_elements=["id"], set_=values)
        )
