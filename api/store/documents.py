"""Stores versioned documents.  The primary key admits version n+1 once; a concurrent second writer fails."""

from datetime import datetime
from typing import Any

from sqlalchemy import func, insert, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from api.store.errors import ConflictError
from api.store.records import DocumentRecord
from api.store.tables import DocumentRow

TABLE = DocumentRow.__table__


class DocumentRepository:
    """Keeps every version of every document, deletions included."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def head(self, *, kind: str, name: str) -> DocumentRecord | None:
        """Return the newest version, which may be a tombstone."""
        query = _versions(kind, name).order_by(DocumentRow.version.desc()).limit(1)
        row = (await self._connection.execute(query)).one_or_none()
        return _record(row) if row is not None else None

    async def get(self, *, kind: str, name: str, version: int) -> DocumentRecord | None:
        query = _versions(kind, name).where(DocumentRow.version == version)
        row = (await self._connection.execute(query)).one_or_none()
        return _record(row) if row is not None else None

    async def versions(self, *, kind: str, name: str, before: int | None, limit: int) -> list[DocumentRecord]:
        """Return the newest versions before a number."""
        query = _versions(kind, name).order_by(DocumentRow.version.desc()).limit(limit)
        if before is not None:
            query = query.where(DocumentRow.version < before)
        return [_record(row) for row in await self._connection.execute(query)]

    async def heads(self, *, kind: str, after: str | None, limit: int) -> list[DocumentRecord]:
        """Return the newest version of each document that is not deleted, by name."""
        newest = (
            select(DocumentRow.name, func.max(DocumentRow.version).label("version"))
            .where(DocumentRow.kind == kind)
            .group_by(DocumentRow.name)
            .subquery()
        )
        query = (
            select(TABLE)
            .join(newest, (DocumentRow.name == newest.c.name) & (DocumentRow.version == newest.c.version))
            .where(DocumentRow.kind == kind, DocumentRow.body.is_not(None))
            .order_by(DocumentRow.name)
            .limit(limit)
        )
        if after is not None:
            query = query.where(DocumentRow.name > after)
        return [_record(row) for row in await self._connection.execute(query)]

    async def add_version(
        self, *, kind: str, name: str, after: int, body: str | None, created_at: datetime, created_by: str
    ) -> DocumentRecord:
        """Add the version after `after`; ConflictError when `after` is not the newest."""
        newest = await self.head(kind=kind, name=name)
        if (newest.version if newest is not None else 0) != after:
            raise ConflictError(f"{kind}/{name} has changed")
        new = DocumentRecord(
            kind=kind, name=name, version=after + 1, body=body, created_at=created_at, created_by=created_by
        )
        values = {"kind": kind, "name": name, "version": new.version, "body": body}
        try:
            await self._connection.execute(
                insert(DocumentRow).values(**values, created_at=created_at, created_by=created_by)
            )
        except IntegrityError as error:
            raise ConflictError(f"{kind}/{name} has changed") from error
        return new


def _versions(kind: str, name: str) -> Any:
    return select(TABLE).where(DocumentRow.kind == kind, DocumentRow.name == name)


def _record(row: Any) -> DocumentRecord:
    return DocumentRecord(
        kind=row.kind,
        name=row.name,
        version=row.version,
        body=row.body,
        created_at=row.created_at,
        created_by=row.created_by,
    )
