"""Reads and writes the rows of each table over one connection; `audit` has the repository of the audit chain.

A record has the fields of its row, so that no repository copies field by field.  A list has up to
`limit` records before or after a key, the cursor of the API.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from functools import cache
from typing import Any, Final

from sqlalchemy import (
    CursorResult,
    Executable,
    Integer,
    String,
    and_,
    bindparam,
    delete,
    func,
    insert,
    literal,
    or_,
    select,
    tuple_,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.orm import aliased

from api.schemas.projects import DEFAULT_PROJECT
from api.store.canonical import canonical_json
from api.store.errors import ConflictError, KeyReusedError, KeyTakenError
from api.store.records import (
    DiagnosisHead,
    DocumentRecord,
    LeaseRecord,
    NewReply,
    QuarantineRecord,
    SavedReply,
)
from api.store.tables import (
    Base,
    DiagnosisRow,
    DocumentRow,
    LeaseRow,
    QuarantineRow,
    ReplyRow,
    WriteProbeRow,
)

DIAGNOSIS_HEAD = [column for column in DiagnosisRow.__table__.columns if column.name != "bundle"]
ONLY_ID = 1  # of the quarantine's row
CLEARED_PER_REPLY = 100
ROWS_PER_STATEMENT = 100
SCANNED_PER_QUERY = 500  # documents, of which those of one project are kept


class Repository:
    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def _rows(self, query: Executable, values: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        found = await self._connection.execute(query, values)
        names = tuple(found.keys())
        return [dict(zip(names, row, strict=True)) for row in found]

    async def _row(self, query: Executable, values: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
        return next(iter(await self._rows(query, values)), None)

    async def _upsert(self, table: type[Base], key: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        statement = _upsert(table, tuple(key), tuple(values), self._connection.dialect.name)
        await self._connection.execute(statement, {**key, **values})

    async def _upsert_many(self, table: type[Base], key: tuple[str, ...], rows: Sequence[Mapping[str, Any]]) -> None:
        on_postgresql = self._connection.dialect.name == "postgresql"
        insert_or: Any = postgresql.insert if on_postgresql else sqlite.insert
        for start in range(0, len(rows), ROWS_PER_STATEMENT):
            statement = insert_or(table).values(list(rows[start : start + ROWS_PER_STATEMENT]))
            others = {name: statement.excluded[name] for name in rows[0] if name not in key}
            await self._connection.execute(statement.on_conflict_do_update(index_elements=[*key], set_=others))


@cache
def _upsert(table: type[Base], key: tuple[str, ...], values: tuple[str, ...], dialect: str) -> Executable:
    insert_or: Any = postgresql.insert if dialect == "postgresql" else sqlite.insert
    statement = insert_or(table.__table__).values({name: bindparam(name) for name in (*key, *values)})
    new = {name: statement.excluded[name] for name in values}
    return statement.on_conflict_do_update(index_elements=[*key], set_=new)  # type: ignore[no-any-return]


class DocumentRepository(Repository):
    """Keeps every version of every document, deletions included.

    The primary key admits version n+1 once; a concurrent second writer fails.
    """

    async def head(self, *, kind: str, name: str) -> DocumentRecord | None:
        """Return the newest version, which may be a tombstone."""
        row = await self._row(_HEAD, {"kind": kind, "name": name})
        return DocumentRecord(**row) if row is not None else None

    async def get(self, *, kind: str, name: str, version: int) -> DocumentRecord | None:
        row = await self._row(_versions(kind, name).where(DocumentRow.version == version))
        return DocumentRecord(**row) if row is not None else None

    async def versions(self, *, kind: str, name: str, before: int | None, limit: int) -> list[DocumentRecord]:
        """Return the newest versions before a number."""
        query = _versions(kind, name).order_by(DocumentRow.version.desc()).limit(limit)
        if before is not None:
            query = query.where(DocumentRow.version < before)
        return [DocumentRecord(**row) for row in await self._rows(query)]

    async def heads(
        self, *, kind: str, after: str | None, limit: int, project: str | None = None
    ) -> list[DocumentRecord]:
        """Return the newest version of each document that is not deleted, by name; of one project, or of all."""
        found: list[DocumentRecord] = []
        batch_size = limit if project is None else max(limit, SCANNED_PER_QUERY)
        while True:
            values = {"kind": kind, "after": after or "", "limit": batch_size}
            batch = [DocumentRecord(**row) for row in await self._rows(_HEADS, values)]
            found += [head for head in batch if head.body is not None and project in (None, head.project)]
            if len(batch) < batch_size or len(found) >= limit:
                return found[:limit]
            after = batch[-1].name

    async def add_version(
        self,
        *,
        kind: str,
        name: str,
        after: int,
        body: str | None,
        created_at: datetime,
        created_by: str,
        project: str = DEFAULT_PROJECT,
        requested_by: str | None = None,
    ) -> DocumentRecord:
        """Add the version after `after`, the newest that was read; ConflictError when there is one already."""
        new = DocumentRecord(
            kind=kind,
            name=name,
            version=after + 1,
            body=body,
            created_at=created_at,
            created_by=created_by,
            project=project,
            requested_by=requested_by,
        )
        try:
            await self._connection.execute(_INSERT_DOCUMENT, asdict(new))
        except IntegrityError as error:
            raise ConflictError(f"{kind}/{name} has changed") from error
        return new


# Built once: it is the statement of most reads.
_HEAD: Final = (
    select(DocumentRow.__table__)
    .where(DocumentRow.kind == bindparam("kind"), DocumentRow.name == bindparam("name"))
    .order_by(DocumentRow.version.desc())
    .limit(1)
)


def _versions(kind: str, name: str) -> Any:
    return select(DocumentRow.__table__).where(DocumentRow.kind == kind, DocumentRow.name == name)


def _heads() -> Any:
    """Select the newest versions of up to `limit` documents of a kind after a name, deletions included.

    The query steps from name to name through the primary key, so that old versions cost nothing.
    """
    kind, limit = bindparam("kind", type_=String()), bindparam("limit", type_=Integer())
    of_kind = DocumentRow.kind == kind
    first = select(func.min(DocumentRow.name).label("name"), literal(1).label("number")).where(of_kind)
    names = first.where(DocumentRow.name > bindparam("after", type_=String())).cte("names", recursive=True)
    following = select(func.min(DocumentRow.name)).where(of_kind, DocumentRow.name > names.c.name).scalar_subquery()
    is_full = names.c.number >= limit
    names = names.union_all(select(following, names.c.number + 1).where(names.c.name.is_not(None), ~is_full))
    version = aliased(DocumentRow)
    newest = select(func.max(version.version)).where(version.kind == kind, version.name == names.c.name)
    return (
        select(DocumentRow.__table__)
        .join(names, DocumentRow.name == names.c.name)
        .where(of_kind, DocumentRow.version == newest.scalar_subquery())
        .order_by(DocumentRow.name)
    )


_HEADS: Final = _heads()
_INSERT_DOCUMENT: Final = insert(DocumentRow)


class DiagnosisRepository(Repository):
    """Keeps diagnoses as reported: written once with their bundle.  Only the expiry changes.

    No list reads a bundle.
    """

    async def add(self, head: DiagnosisHead, *, bundle: bytes | None) -> None:
        """Store a diagnosis under its new id; `bundle` is compressed."""
        await self._connection.execute(insert(DiagnosisRow).values(**asdict(head), bundle=bundle))

    async def get(self, diagnosis_id: str, *, project: str | None = None) -> DiagnosisHead | None:
        """Return one diagnosis of a project, or of any, without its bundle."""
        query = select(*DIAGNOSIS_HEAD).where(DiagnosisRow.id == diagnosis_id)
        row = await self._row(query if project is None else query.where(DiagnosisRow.project == project))
        return DiagnosisHead(**row) if row is not None else None

    async def newest_id(self) -> str | None:
        return (await self._connection.execute(select(func.max(DiagnosisRow.id)))).scalar_one()

    async def bundle(self, diagnosis_id: str) -> bytes | None:
        """Return the compressed bundle; None without one."""
        row = await self._row(select(DiagnosisRow.__table__.c.bundle).where(DiagnosisRow.id == diagnosis_id))
        return row["bundle"] if row is not None else None

    async def page(
        self, *, before_id: str | None, limit: int, project: str | None = None, active_at: datetime | None = None
    ) -> list[DiagnosisHead]:
        """Return the newest diagnoses before an id, of one project or of all; with `active_at`, unexpired ones only."""
        query = select(*DIAGNOSIS_HEAD).order_by(DiagnosisRow.id.desc()).limit(limit)
        if active_at is not None:
            query = query.where(DiagnosisRow.expires_at > active_at)
        if before_id is not None:
            query = query.where(DiagnosisRow.id < before_id)
        if project is not None:
            query = query.where(DiagnosisRow.project == project)
        return [DiagnosisHead(**row) for row in await self._rows(query)]

    async def active(self, *, now: datetime, limit: int) -> list[DiagnosisHead]:
        """Return the newest diagnoses that have not expired."""
        query = select(*DIAGNOSIS_HEAD).where(DiagnosisRow.expires_at > now).order_by(DiagnosisRow.id.desc())
        return [DiagnosisHead(**row) for row in await self._rows(query.limit(limit))]

    async def set_expiry(self, diagnosis_id: str, *, expires_at: datetime) -> None:
        query = update(DiagnosisRow).where(DiagnosisRow.id == diagnosis_id)
        await self._connection.execute(query.values(expires_at=expires_at))


class QuarantineRepository(Repository):
    """Keeps the state of the policy in one row: evaluations are frequent, and only the last state matters."""

    async def get(self) -> QuarantineRecord | None:
        """Return None before the first evaluation."""
        row = await self._row(select(QuarantineRow.evaluated_at, QuarantineRow.evaluated_by, QuarantineRow.body))
        return QuarantineRecord(**row) if row is not None else None

    async def put(self, record: QuarantineRecord) -> None:
        """Replace the state.  The caller has held the audit lock since it read the row."""
        await self._upsert(QuarantineRow, {"id": ONLY_ID}, asdict(record))


class WriteProbeRepository(Repository):
    """Keeps one row of each replica, which it writes only to check that the database takes writes."""

    async def put(self, *, replica: str, at: datetime) -> None:
        await self._upsert(WriteProbeRow, {"replica": replica}, {"at": at})


class LeaseRepository(Repository):
    """Keeps leases, one row each, replaced in place: renewals are frequent, and only the last one matters."""

    async def get(self, name: str) -> LeaseRecord | None:
        """Return None for a lease that never had a holder."""
        row = await self._row(_LEASE, {"name": name})
        return LeaseRecord(**row) if row is not None else None

    async def page(self, *, after: str | None, limit: int) -> list[LeaseRecord]:
        query = select(LeaseRow.__table__).order_by(LeaseRow.name).limit(limit)
        if after is not None:
            query = query.where(LeaseRow.name > after)
        return [LeaseRecord(**row) for row in await self._rows(query)]

    async def put(self, lease: LeaseRecord, *, after: LeaseRecord | None) -> None:
        """Replace a lease; ConflictError when the stored lease is not `after` any more."""
        if after is None:
            try:
                await self._connection.execute(insert(LeaseRow).values(**asdict(lease)))
            except IntegrityError as error:
                raise ConflictError(f"lease {lease.name!r} was taken at the same time") from error
            return
        expected = (LeaseRow.name == lease.name, LeaseRow.term == after.term, LeaseRow.beats == after.beats)
        query = update(LeaseRow).where(*expected).values(**asdict(lease))
        done: CursorResult[Any] = await self._connection.execute(query)
        if done.rowcount != 1:
            raise ConflictError(f"lease {lease.name!r} was changed at the same time")


_LEASE: Final = select(LeaseRow.__table__).where(LeaseRow.name == bindparam("name"))


class ReplyRepository(Repository):
    """Keeps responses for idempotency keys, in the transaction of the work itself.

    The second request to save a key violates the primary key, rolls its work back and returns the first response.  The
    work may run twice but takes effect once.
    """

    async def find(self, *, actor: str, key: str, fingerprint: str, now: datetime) -> SavedReply | None:
        """Return the stored response; KeyReusedError when the key belongs to another request."""
        mine = (ReplyRow.actor == actor, ReplyRow.key == key, ReplyRow.expires_at > now)
        row = await self._row(select(ReplyRow.__table__).where(*mine))
        if row is None:
            return None
        if row["fingerprint"] != fingerprint:
            raise KeyReusedError("this key was used for another request")
        return SavedReply(status=row["status"], headers=json.loads(row["headers"]), body=row["body"])

    async def save(self, reply: NewReply, *, now: datetime) -> None:
        """Store a response; KeyTakenError when another request has saved the key."""
        await self._clear(reply, now=now)
        values = asdict(reply) | {"headers": canonical_json(dict(reply.headers))}
        try:
            await self._connection.execute(insert(ReplyRow).values(**values))
        except IntegrityError as error:
            raise KeyTakenError("this idempotency key was taken meanwhile") from error

    async def _clear(self, reply: NewReply, *, now: datetime) -> None:
        """Delete what has expired of this key, and the oldest of all: a few, because every writer waits meanwhile."""
        oldest = select(ReplyRow.actor, ReplyRow.key).where(ReplyRow.expires_at <= now)
        oldest = oldest.order_by(ReplyRow.expires_at).limit(CLEARED_PER_REPLY)
        chosen = or_(
            and_(ReplyRow.actor == reply.actor, ReplyRow.key == reply.key),
            tuple_(ReplyRow.actor, ReplyRow.key).in_(oldest),
        )
        await self._connection.execute(delete(ReplyRow).where(ReplyRow.expires_at <= now, chosen))
