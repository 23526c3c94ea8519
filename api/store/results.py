"""Keeps stored results with their names and labels: written once and never changed."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

from sqlalchemy import exists, func, insert, select

from api.store.canonical import canonical_json
from api.store.records import ResultFilter, ResultSummary, StoredResult
from api.store.repositories import Repository
from api.store.tables import ResultLabelRow, ResultRow

RESULT_HEAD = [column for column in ResultRow.__table__.columns if column.name not in {"request", "result"}]


class ResultRepository(Repository):
    """Reads and writes results.  No list reads the large columns."""

    async def add(self, stored: StoredResult) -> None:
        """Store a result under its new id, with its labels."""
        values = asdict(stored.head) | {"request": stored.request, "result": stored.result}
        labels = values.pop("labels")
        await self._connection.execute(insert(ResultRow).values(**values))
        if labels:
            rows = [{"result_id": stored.head.id, "key": key, "value": value} for key, value in labels.items()]
            await self._connection.execute(insert(ResultLabelRow), rows)

    async def get(self, *, kind: str, result_id: str, project: str | None = None) -> StoredResult | None:
        """Return a result of a project, or of any."""
        query = select(ResultRow.__table__).where(ResultRow.kind == kind, ResultRow.id == result_id)
        row = await self._row(query if project is None else query.where(ResultRow.project == project))
        if row is None:
            return None
        (head,) = await self._labelled([ResultSummary(**{column.name: row[column.name] for column in RESULT_HEAD})])
        return StoredResult(head=head, request=row["request"], result=row["result"])

    async def of_content(self, content_sha256: str, *, since: datetime) -> StoredResult | None:
        """Return the newest result of the same content, of any project, that is not older than `since`."""
        same = (ResultRow.content_sha256 == content_sha256, ResultRow.created_at >= since)
        query = select(ResultRow.kind, ResultRow.id).where(*same).order_by(ResultRow.id.desc()).limit(1)
        row = await self._row(query)
        return await self.get(kind=row["kind"], result_id=row["id"]) if row is not None else None

    async def exists(self, *, kind: str, result_id: str, project: str | None = None) -> bool:
        query = select(ResultRow.id).where(ResultRow.kind == kind, ResultRow.id == result_id)
        return await self._row(query if project is None else query.where(ResultRow.project == project)) is not None

    async def newest_id(self, kind: str) -> str | None:
        query = select(func.max(ResultRow.id)).where(ResultRow.kind == kind)
        return (await self._connection.execute(query)).scalar_one()

    async def page(
        self,
        *,
        kind: str,
        before_id: str | None,
        limit: int,
        project: str | None = None,
        chosen: ResultFilter | None = None,
    ) -> list[ResultSummary]:
        """Return the newest results of a kind before an id: of one project or of all, and only the chosen ones."""
        query = select(*RESULT_HEAD).where(ResultRow.kind == kind).order_by(ResultRow.id.desc()).limit(limit)
        if before_id is not None:
            query = query.where(ResultRow.id < before_id)
        if project is not None:
            query = query.where(ResultRow.project == project)
        if chosen is not None:
            query = query.where(*_conditions(chosen))
        return await self._labelled([ResultSummary(**row) for row in await self._rows(query)])

    async def _labelled(self, heads: Sequence[ResultSummary]) -> list[ResultSummary]:
        ids = [head.id for head in heads]
        query = select(ResultLabelRow.__table__).where(ResultLabelRow.result_id.in_(ids)).order_by(ResultLabelRow.key)
        labels: dict[str, dict[str, str]] = {}
        for row in await self._rows(query) if ids else ():
            labels.setdefault(row["result_id"], {})[row["key"]] = row["value"]
        return [replace(head, labels=labels.get(head.id, {})) for head in heads]


def _conditions(chosen: ResultFilter) -> list[Any]:
    conditions: list[Any] = []
    if (prefix := chosen.name_prefix) is not None:  # by characters: LIKE ignores case on SQLite
        conditions.append(func.substr(ResultRow.name, 1, len(prefix)) == prefix)
    if chosen.created_by is not None:
        conditions.append(ResultRow.created_by == chosen.created_by)
    if chosen.created_after is not None:
        conditions.append(ResultRow.created_at >= chosen.created_after)
    if chosen.created_before is not None:
        conditions.append(ResultRow.created_at < chosen.created_before)
    if chosen.status is not None:  # canonical JSON has one spelling, and escapes quotes inside of texts
        spelled = canonical_json({"status": chosen.status})[1:-1]
        conditions.append(ResultRow.summary.contains(spelled, autoescape=True))
    for key, value in chosen.labels.items():
        of_result = (ResultLabelRow.result_id == ResultRow.id, ResultLabelRow.key == key)
        has_value = () if value is None else (ResultLabelRow.value == value,)
        conditions.append(exists().where(*of_result, *has_value))
    return conditions
