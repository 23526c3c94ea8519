"""Keeps the controller's last reports on targets and on planning loops."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Final

from sqlalchemy import bindparam, delete, select

from api.store.records import LoopStatusRecord, StatusRecord
from api.store.repositories import Repository
from api.store.tables import PlanningLoopStatusRow, TargetStatusRow

_LOOP_STATUS: Final = [column for column in PlanningLoopStatusRow.__table__.columns if column.name != "state"]
_STATUS: Final = select(TargetStatusRow.__table__).where(TargetStatusRow.target == bindparam("target"))


class StatusRepository(Repository):
    """Keeps the controller's last report on each target.  The audit has the changes of phase."""

    async def put(self, status: StatusRecord) -> None:
        values = asdict(status)
        await self._upsert(TargetStatusRow, {"target": values.pop("target")}, values)

    async def get(self, target: str) -> StatusRecord | None:
        row = await self._row(_STATUS, {"target": target})
        return StatusRecord(**row) if row is not None else None

    async def all(self) -> list[StatusRecord]:
        query = select(TargetStatusRow.__table__).order_by(TargetStatusRow.target)
        return [StatusRecord(**row) for row in await self._rows(query)]

    async def of(self, targets: Sequence[str]) -> list[StatusRecord]:
        """Return the reports on some targets, by name; those without a report are left out."""
        row = TargetStatusRow
        query = select(row.__table__).where(row.target.in_(targets)).order_by(row.target)
        return [StatusRecord(**each) for each in await self._rows(query)]

    async def remove(self, target: str) -> None:
        await self._connection.execute(delete(TargetStatusRow).where(TargetStatusRow.target == target))


class LoopStatusRepository(Repository):
    """Keeps the controller's last report on each planning loop, and its state.  No list reads a state."""

    async def put(self, status: LoopStatusRecord, *, state: str | None) -> None:
        """Replace a report; without a state the stored state stays."""
        values = asdict(status) | ({"state": state} if state is not None else {})
        await self._upsert(PlanningLoopStatusRow, {"planning_loop": values.pop("planning_loop")}, values)

    async def get(self, planning_loop: str) -> LoopStatusRecord | None:
        """Return a report without its state."""
        found = await self.of([planning_loop])
        return found[0] if found else None

    async def state(self, planning_loop: str) -> str | None:
        row = PlanningLoopStatusRow
        found = await self._row(select(row.__table__.c.state).where(row.planning_loop == planning_loop))
        return found["state"] if found is not None else None

    async def of(self, planning_loops: Sequence[str]) -> list[LoopStatusRecord]:
        """Return the reports on some loops, by name; those without a report are left out."""
        row = PlanningLoopStatusRow
        query = select(*_LOOP_STATUS).where(row.planning_loop.in_(planning_loops)).order_by(row.planning_loop)
        return [LoopStatusRecord(**each) for each in await self._rows(query)]

    async def all(self) -> list[LoopStatusRecord]:
        query = select(*_LOOP_STATUS).order_by(PlanningLoopStatusRow.planning_loop)
        return [LoopStatusRecord(**each) for each in await self._rows(query)]

    async def remove(self, planning_loop: str) -> None:
        row = PlanningLoopStatusRow
        await self._connection.execute(delete(row).where(row.planning_loop == planning_loop))
