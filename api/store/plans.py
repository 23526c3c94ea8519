"""Plans: written once, read often, never changed."""

from typing import Any

from sqlalchemy import insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from api.store.records import StoredPlan
from api.store.tables import PlanRow

TABLE = PlanRow.__table__


class PlanRepository:
    """Stored plans by id, newest first."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def add(self, plan: StoredPlan) -> None:
        """Store a plan under its new id."""
        await self._connection.execute(
            insert(PlanRow).values(
                id=plan.id,
                created_at=plan.created_at,
                created_by=plan.created_by,
                status=plan.status,
                cost_usd_per_h=plan.cost_usd_per_h,
                request=plan.request,
                answer=plan.answer,
            )
        )

    async def get(self, plan_id: str) -> StoredPlan | None:
        """One plan."""
        row = (await self._connection.execute(select(TABLE).where(PlanRow.id == plan_id))).one_or_none()
        return _record(row) if row is not None else None

    async def page(self, *, before_id: str | None, limit: int) -> list[StoredPlan]:
        """The newest plans before an id."""
        query = select(TABLE).order_by(PlanRow.id.desc()).limit(limit)
        if before_id is not None:
            query = query.where(PlanRow.id < before_id)
        return [_record(row) for row in await self._connection.execute(query)]


def _record(row: Any) -> StoredPlan:
    return StoredPlan(
        id=row.id,
        created_at=row.created_at,
        created_by=row.created_by,
        status=row.status,
        cost_usd_per_h=row.cost_usd_per_h,
        request=row.request,
        answer=row.answer,
    )
