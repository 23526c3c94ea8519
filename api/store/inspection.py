"""Reads what an operator checks of a database: its clock, its connections, and the processes that use it."""

from datetime import UTC, datetime

from sqlalchemy import func, select, text

from api.store.engine import POOL_LIMIT
from api.store.repositories import Repository
from api.store.tables import WriteProbeRow

CONNECTIONS_PER_PROCESS = POOL_LIMIT


class InspectionRepository(Repository):
    async def clock(self) -> datetime | None:
        """Return the clock of the database server; None for SQLite, which has none."""
        if self._connection.dialect.name != "postgresql":
            return None
        now: datetime = (await self._connection.execute(select(func.clock_timestamp()))).scalar_one()
        return now.astimezone(UTC)

    async def connection_limit(self) -> int | None:
        """Return how many connections the database server grants to programs; None for SQLite."""
        if self._connection.dialect.name != "postgresql":
            return None
        query = text(
            "SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int"
        )
        return int((await self._connection.execute(query)).scalar_one())

    async def replicas(self, *, since: datetime) -> list[str]:
        """Return the replicas of the service that have probed the database since then."""
        query = select(WriteProbeRow.replica).where(WriteProbeRow.at >= since).order_by(WriteProbeRow.replica)
        return [row["replica"] for row in await self._rows(query)]
