"""What the isolation policy remembers, in one row: looks come every few seconds, and only the last state counts."""

from typing import Any

from sqlalchemy import select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from api.store.records import IsolationRecord
from api.store.tables import IsolationRow

ONLY_ID = 1


class IsolationRepository:
    """The one memory of the fleet."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def get(self) -> IsolationRecord | None:
        """What is remembered; None before the first look."""
        row = (await self._connection.execute(select(IsolationRow.__table__))).one_or_none()
        return IsolationRecord(row.looked_at, row.looked_by, row.body) if row is not None else None

    async def put(self, record: IsolationRecord) -> None:
        """Replace it.  Whoever read it before holds the audit's lock since."""
        on_postgresql = self._connection.dialect.name == "postgresql"
        insert: Any = postgresql.insert if on_postgresql else sqlite.insert
        values = {"looked_at": record.looked_at, "looked_by": record.looked_by, "body": record.body}
        await self._connection.execute(
            insert(IsolationRow).values(id=ONLY_ID, **values).on_conflict_do_update(index_elements=["id"], set_=values)
        )
