"""Adds up what projects use, and keeps what each replica has served to each caller."""

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, cast, delete, func, select
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.types import LargeBinary

from api.schemas.jobs import JobState
from api.store.records import RateUsage
from api.store.repositories import Repository
from api.store.tables import DiagnosisRow, DocumentRow, JobRow, RateUsageRow, ResultRow

SIZED: Mapping[Any, tuple[Any, ...]] = {
    ResultRow: (ResultRow.request, ResultRow.result, ResultRow.summary),
    DocumentRow: (DocumentRow.body,),
    DiagnosisRow: (DiagnosisRow.report, DiagnosisRow.bundle),
}


@dataclass(frozen=True, slots=True)
class Counted:
    """Is the sum of the sizes of a project's rows when they were counted, and what was added since."""

    size: int
    at_s: float


class UsageRepository(Repository):
    """Counts the jobs and the bytes of projects.  The process keeps the bytes for a while: to count them takes long."""

    def __init__(self, connection: AsyncConnection, counted: dict[str, Counted]) -> None:
        super().__init__(connection)
        self._counted = counted

    async def jobs(self, project: str, kinds: Collection[str], *, since: datetime) -> int:
        query = select(func.count()).where(
            JobRow.project == project, JobRow.kind.in_(sorted(kinds)), JobRow.created_at > since
        )
        return int(await self._value(query))

    async def queued_jobs(self, project: str) -> int:
        return int(
            await self._value(
                select(func.count()).where(
                    JobRow.project == project, JobRow.state == JobState.QUEUED.value, JobRow.parent.is_(None)
                )
            )
        )

    async def cpu_s(self, project: str, *, since: datetime) -> float:
        query = select(func.coalesce(func.sum(JobRow.cpu_s), 0.0))
        return float(await self._value(query.where(JobRow.project == project, JobRow.created_at > since)))

    async def stored_bytes(self, project: str) -> int:
        """Add the sizes of all results, documents and diagnoses: this reads every row of the project."""
        total = 0
        for row, columns in SIZED.items():
            sizes = [func.coalesce(func.sum(self._size(column)), 0) for column in columns]
            found = await self._connection.execute(select(*sizes).where(row.project == project))
            total += sum(map(int, found.one()))
        return total

    async def recent_bytes(self, project: str, *, max_age_s: float) -> int:
        """Return the bytes as counted at most so long ago, and what this process added since."""
        now_s, found = time.monotonic(), self._counted.get(project)
        if found is None or now_s - found.at_s > max_age_s:
            found = self._counted[project] = Counted(await self.stored_bytes(project), now_s)
        return found.size

    def add_bytes(self, project: str, size: int) -> None:
        if (found := self._counted.get(project)) is not None:
            self._counted[project] = Counted(found.size + size, found.at_s)

    def _size(self, column: Any) -> ColumnElement[int]:
        if self._connection.dialect.name == "postgresql":
            return func.octet_length(column)
        return func.length(cast(column, LargeBinary))

    async def _value(self, query: Any) -> Any:
        return (await self._connection.execute(query)).scalar_one()


class RateUsageRepository(Repository):
    """Keeps what each replica has granted to each caller.  The name of a replica ends with `.` and a period."""

    async def put(self, spent: Mapping[tuple[str, str], float], *, at: datetime) -> None:
        """Replace what was granted, by caller and replica."""
        rows = [
            {"caller": caller, "replica": replica, "spent": total, "at": at}
            for (caller, replica), total in sorted(spent.items())
        ]
        await self._upsert_many(RateUsageRow, ("caller", "replica"), rows)

    async def of_others(self, replica: str, *, since: datetime) -> list[RateUsage]:
        others = RateUsageRow.replica.not_like(f"{replica}.%")
        query = select(RateUsageRow.__table__).where(others, RateUsageRow.at >= since)
        return [RateUsage(**row) for row in await self._rows(query)]

    async def forget(self, *, before: datetime) -> None:
        await self._connection.execute(delete(RateUsageRow).where(RateUsageRow.at < before))
