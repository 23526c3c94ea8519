"""Stores the controller's last report on each target.  The audit has the changes of phase."""

from typing import Any

from sqlalchemy import delete, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from api.store.records import StatusRecord
from api.store.tables import TargetStatusRow

TABLE = TargetStatusRow.__table__


class StatusRepository:
    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def put(self, status: StatusRecord) -> None:
        on_postgresql = self._connection.dialect.name == "postgresql"
        insert: Any = postgresql.insert if on_postgresql else sqlite.insert
        values = {"reported_at": status.reported_at, "body": status.body}
        await self._connection.execute(
            insert(TargetStatusRow)
            .values(target=status.target, **values)
            .on_conflict_do_update(index_elements=["target"], set_=values)
        )

    async def get(self, target: str) -> StatusRecord | None:
        row = (await self._connection.execute(select(TABLE).where(TargetStatusRow.target == target))).one_or_none()
        return _record(row) if row is not None else None

    async def all(self) -> list[StatusRecord]:
        return [_record(row) for row in await self._connection.execute(select(TABLE).order_by(TargetStatusRow.target))]

    async def remove(self, target: str) -> None:
        await self._connection.execute(delete(TargetStatusRow).where(TargetStatusRow.target == target))


def _record(row: Any) -> StatusRecord:
    return StatusRecord(target=row.target, reported_at=row.reported_at, body=row.body)
