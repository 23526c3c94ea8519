"""Stores diagnoses as reported: written once with their bundle.  Only the expiry changes."""

from datetime import datetime
from typing import Any

from sqlalchemy import insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from api.store.records import DiagnosisHead
from api.store.tables import DiagnosisRow

HEAD = [column for column in DiagnosisRow.__table__.columns if column.name != "bundle"]


class DiagnosisRepository:
    """Stores diagnoses by id.  No list reads a bundle."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def add(self, head: DiagnosisHead, *, bundle: bytes | None) -> None:
        """Store a diagnosis under its new id; `bundle` is compressed."""
        values = {column.name: getattr(head, column.name) for column in HEAD}
        await self._connection.execute(insert(DiagnosisRow).values(**values, bundle=bundle))

    async def get(self, diagnosis_id: str) -> DiagnosisHead | None:
        """Return one diagnosis without its bundle."""
        row = (await self._connection.execute(select(*HEAD).where(DiagnosisRow.id == diagnosis_id))).one_or_none()
        return _head(row) if row is not None else None

    async def bundle(self, diagnosis_id: str) -> bytes | None:
        """Return the compressed bundle; None without one."""
        query = select(DiagnosisRow.__table__.c.bundle).where(DiagnosisRow.id == diagnosis_id)
        found: bytes | None = (await self._connection.execute(query)).scalar_one_or_none()
        return found

    async def page(self, *, before_id: str | None, limit: int) -> list[DiagnosisHead]:
        """Return the newest diagnoses before an id."""
        query = select(*HEAD).order_by(DiagnosisRow.id.desc()).limit(limit)
        if before_id is not None:
            query = query.where(DiagnosisRow.id < before_id)
        return [_head(row) for row in await self._connection.execute(query)]

    async def active(self, *, now: datetime, limit: int) -> list[DiagnosisHead]:
        """Return the newest diagnoses that have not expired."""
        query = select(*HEAD).where(DiagnosisRow.expires_at > now).order_by(DiagnosisRow.id.desc()).limit(limit)
        return [_head(row) for row in await self._connection.execute(query)]

    async def set_expiry(self, diagnosis_id: str, *, expires_at: datetime) -> None:
        await self._connection.execute(
            update(DiagnosisRow).where(DiagnosisRow.id == diagnosis_id).values(expires_at=expires_at)
        )


def _head(row: Any) -> DiagnosisHead:
    return DiagnosisHead(**{column.name: getattr(row, column.name) for column in HEAD})
