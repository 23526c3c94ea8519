"""Finds and removes rows that are older than the operator keeps them, a few at a time, and never an audit entry.

Every batch is one transaction, which holds the lock of all writers: what a document names cannot change meanwhile.  A
result or a diagnosis stays while a live document, a report on a target or a planning loop, or the quarantine policy has
its id somewhere in its text, whatever the field: a newer release may have added fields that this one does not know.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import ColumnElement, and_, delete, func, literal, or_, select, text, tuple_, update

from api.schemas.jobs import JobState
from api.store.repositories import DocumentRepository, Repository
from api.store.tables import (
    Base,
    DiagnosisRow,
    DocumentRow,
    JobRow,
    LeaseRow,
    PlanningLoopStatusRow,
    QuarantineRow,
    RateUsageRow,
    ReplyRow,
    ResultLabelRow,
    ResultRow,
    TargetStatusRow,
    TokenRow,
    WriteProbeRow,
)

ID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
KEPT_FREE_PAGES: Final = 1_000  # of an SQLite file, for the next rows
READ_AT_ONCE: Final = 200
PROCESS_ROWS_KEPT: Final = timedelta(days=1)  # of processes that have ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long rows are kept."""

    results: Mapping[str, timedelta]  # by kind
    bundles: timedelta
    diagnoses: timedelta
    cases: timedelta  # that are closed
    versions: timedelta  # of documents, deleted ones too
    versions_count: int  # newest versions of a document that stay, however old
    jobs: timedelta  # that are finished
    tokens: timedelta  # that are expired or revoked
    leases: timedelta  # since the last renewal
    kept_token_makers: frozenset[str]  # a revoked first token that was forgotten could be stored again
    case_kind: str
    is_closed: Callable[[str], bool]  # takes the body of a case


def _unread() -> ColumnElement[bool]:
    """Select jobs whose output no waiting sweep will read."""
    waiting = select(JobRow.id).where(JobRow.state == JobState.WAITING.value)
    return or_(JobRow.parent.is_(None), JobRow.parent.not_in(waiting.scalar_subquery()))


@dataclass(frozen=True, slots=True)
class Batch:
    """Is what one transaction removed.  `after` is where the next one begins; None: nothing is left."""

    removed: int
    after: tuple[Any, ...] | None


Expired = Callable[[Retention, datetime], ColumnElement[bool]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Describes rows of one table that have an end."""

    name: str
    table: type[Base]
    key: tuple[str, ...]
    expired: Expired
    named_by: str | None = None  # the column of the id by which documents name the row
    cleared: tuple[str, ...] = ()  # columns that lose their value; none: the row goes
    audited: bool = True


def _result_rule(kind: str) -> Rule:
    return Rule(
        name=f"{kind}s".replace(" ", "-"),
        table=ResultRow,
        key=("kind", "id"),
        expired=lambda keep, now: and_(ResultRow.kind == kind, ResultRow.created_at < now - keep.results[kind]),
        named_by="id",
    )


def _inactive(before: datetime, now: datetime) -> ColumnElement[bool]:
    return and_(DiagnosisRow.created_at < before, DiagnosisRow.expires_at < now)


_OTHERS: Final = (
    Rule(
        name="bundles",
        table=DiagnosisRow,
        key=("id",),
        expired=lambda keep, now: and_(_inactive(now - keep.bundles, now), DiagnosisRow.bundle.is_not(None)),
        named_by="id",
        cleared=("bundle", "bundle_sha256"),
    ),
    Rule(
        name="diagnoses",
        table=DiagnosisRow,
        key=("id",),
        expired=lambda keep, now: _inactive(now - keep.diagnoses, now),
        named_by="id",
    ),
    Rule(
        name="jobs",
        table=JobRow,
        key=("id",),
        expired=lambda keep, now: and_(JobRow.finished_at < now - keep.jobs, _unread()),
    ),
    Rule(
        name="tokens",
        table=TokenRow,
        key=("id",),
        expired=lambda keep, now: and_(
            or_(TokenRow.expires_at < now - keep.tokens, TokenRow.revoked_at < now - keep.tokens),
            TokenRow.created_by.not_in(keep.kept_token_makers),
        ),
    ),
    Rule(
        name="leases",
        table=LeaseRow,
        key=("name",),
        expired=lambda keep, now: LeaseRow.renewed_at < now - keep.leases,
    ),
    Rule(
        name="replies",
        table=ReplyRow,
        key=("actor", "key"),
        expired=lambda _keep, now: ReplyRow.expires_at <= now,
        audited=False,
    ),
    Rule(
        name="write-probes",
        table=WriteProbeRow,
        key=("replica",),
        expired=lambda _keep, now: WriteProbeRow.at < now - PROCESS_ROWS_KEPT,
        audited=False,
    ),
    Rule(
        name="rate-usage",
        table=RateUsageRow,
        key=("caller", "replica"),
        expired=lambda _keep, now: RateUsageRow.at < now - PROCESS_ROWS_KEPT,
        audited=False,
    ),
)


def rules(keep: Retention) -> Sequence[Rule]:
    """Return the rules for rows of tables other than documents."""
    return (*(_result_rule(kind) for kind in keep.results), *_OTHERS)


class RetentionRepository(Repository):
    """Removes one batch per call; `dry_run` only counts it."""

    async def remove(
        self, rule: Rule, keep: Retention, *, now: datetime, after: tuple[Any, ...] | None, limit: int, dry_run: bool
    ) -> Batch:
        columns = [getattr(rule.table, name) for name in rule.key]
        query = select(*columns).where(rule.expired(keep, now)).order_by(*columns).limit(limit)
        if after is not None:
            query = query.where(tuple_(*columns) > tuple_(*map(literal, after)))
        found = [tuple(row.values()) for row in await self._rows(query)]
        chosen = found
        if found and rule.named_by is not None:
            named, column = await self.named_ids(), rule.key.index(rule.named_by)
            chosen = [key for key in found if key[column] not in named]
        if chosen and not dry_run:
            these = tuple_(*columns).in_(chosen)
            if rule.cleared:
                await self._connection.execute(update(rule.table).where(these).values(dict.fromkeys(rule.cleared)))
            else:
                await self._connection.execute(delete(rule.table).where(these))
            if rule.table is ResultRow:
                ids = [result_id for _kind, result_id in chosen]
                await self._connection.execute(delete(ResultLabelRow).where(ResultLabelRow.result_id.in_(ids)))
        return Batch(len(chosen), found[-1] if len(found) == limit else None)

    async def remove_documents(
        self, keep: Retention, *, now: datetime, after: tuple[Any, ...] | None, limit: int, dry_run: bool
    ) -> tuple[Batch, Batch]:
        """Remove closed cases, and documents that were deleted long ago; count both."""
        of_case = DocumentRow.kind == keep.case_kind
        newest = _newest()
        old = or_(
            and_(of_case, DocumentRow.created_at < now - keep.cases),
            and_(DocumentRow.body.is_(None), DocumentRow.created_at < now - keep.versions),
        )
        key = (DocumentRow.kind, DocumentRow.name)
        query = (
            select(DocumentRow.kind, DocumentRow.name, DocumentRow.body)
            .join(newest, and_(*(column == newest.c[column.name] for column in (*key, DocumentRow.version))))
            .where(old)
            .order_by(*key)
            .limit(limit)
        )
        if after is not None:
            query = query.where(tuple_(*key) > tuple_(*map(literal, after)))
        found = await self._rows(query)
        deleted = [(row["kind"], row["name"]) for row in found if row["body"] is None]
        closed = [
            (row["kind"], row["name"]) for row in found if row["body"] is not None and keep.is_closed(row["body"])
        ]
        if (deleted or closed) and not dry_run:
            await self._connection.execute(delete(DocumentRow).where(tuple_(*key).in_(deleted + closed)))
        last = (found[-1]["kind"], found[-1]["name"]) if len(found) == limit else None
        return Batch(len(closed), last), Batch(len(deleted), last)

    async def long_histories(self, keep: Retention) -> list[tuple[str, str, int]]:
        """Return the documents with more versions than stay in any case, and the newest version that may go."""
        newest = func.max(DocumentRow.version) - keep.versions_count
        query = (
            select(DocumentRow.kind, DocumentRow.name, newest.label("last"))
            .group_by(DocumentRow.kind, DocumentRow.name)
            .having(newest >= func.min(DocumentRow.version))
        )
        return [(row["kind"], row["name"], row["last"]) for row in await self._rows(query)]

    async def remove_versions(
        self, keep: Retention, document: tuple[str, str, int], *, now: datetime, after: int, limit: int, dry_run: bool
    ) -> Batch:
        kind, name, last = document
        of_document = and_(DocumentRow.kind == kind, DocumentRow.name == name)
        query = select(DocumentRow.version).where(
            of_document,
            DocumentRow.version.between(after + 1, last),
            DocumentRow.created_at < now - keep.versions,
        )
        found = [row["version"] for row in await self._rows(query.order_by(DocumentRow.version).limit(limit))]
        if found and not dry_run:
            await self._connection.execute(delete(DocumentRow).where(of_document, DocumentRow.version.in_(found)))
        return Batch(len(found), (found[-1],) if len(found) == limit else None)

    async def named_ids(self) -> set[str]:
        """Return every id in live documents, in reports on targets and planning loops, and in the quarantine policy."""
        loops = PlanningLoopStatusRow
        columns = (TargetStatusRow.body, QuarantineRow.body, loops.body, func.coalesce(loops.state, ""))
        texts = [body for column in columns for body in await self._texts(select(column))]
        named = {found for each in texts for found in ID.findall(each)}
        documents = DocumentRepository(self._connection)
        kind = await self._next_kind("")
        while kind is not None:
            after: str | None = None
            while heads := await documents.heads(kind=kind, after=after, limit=READ_AT_ONCE):
                named |= {found for head in heads for found in ID.findall(head.body or "")}
                after = heads[-1].name
            kind = await self._next_kind(kind)
        return named

    async def reclaim(self, *, pages: int) -> int:
        """Return free pages of an SQLite file to the disk, and say how many are left to return."""
        if self._connection.dialect.name != "sqlite":
            return 0  # PostgreSQL reuses them by itself
        free = (await self._connection.execute(text("PRAGMA freelist_count"))).scalar_one() - KEPT_FREE_PAGES
        if free > 0:
            (await self._connection.execute(text(f"PRAGMA incremental_vacuum({min(pages, free)})"))).all()
        left = (await self._connection.execute(text("PRAGMA freelist_count"))).scalar_one() - KEPT_FREE_PAGES
        return max(0, left) if left < free else 0  # a file of release 0.2.0 gives nothing back

    async def _next_kind(self, kind: str) -> str | None:
        query = select(func.min(DocumentRow.kind)).where(DocumentRow.kind > kind)
        return (await self._connection.execute(query)).scalar_one()

    async def _texts(self, query: Any) -> list[str]:
        return list((await self._connection.execute(query)).scalars())


def _newest() -> Any:
    return (
        select(DocumentRow.kind, DocumentRow.name, func.max(DocumentRow.version).label("version"))
        .group_by(DocumentRow.kind, DocumentRow.name)
        .subquery("newest")
    )
