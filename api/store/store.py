"""Provides transactions over all repositories."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from alembic.runtime.migration import MigrationContext
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from api.store.audit import AuditRepository
from api.store.engine import (
    POOL_LIMIT,
    READ_ONLY,
    SQLITE_POOL,
    is_sqlite,
    make_engine,
    make_single_read_engine,
    parse_url,
)
from api.store.errors import Failure
from api.store.failures import failed, translated_errors
from api.store.inspection import InspectionRepository
from api.store.jobs import JobRepository, WorkerRepository
from api.store.repositories import (
    DiagnosisRepository,
    DocumentRepository,
    LeaseRepository,
    QuarantineRepository,
    ReplyRepository,
    WriteProbeRepository,
)
from api.store.results import ResultRepository
from api.store.retention import RetentionRepository
from api.store.statuses import LoopStatusRepository, StatusRepository
from api.store.time_limits import LOCK_WAIT_S
from api.store.tokens import TokenRepository
from api.store.usage import Counted, RateUsageRepository, UsageRepository

WRITERS: Final = 4  # transactions of one process at the same time, on PostgreSQL


class Transaction:
    """Joins all repositories over one connection; commits as a whole."""

    def __init__(
        self,
        connection: AsyncConnection,
        counted: dict[str, Counted],
        observe_lock_wait_s: Callable[[str, float], None] | None = None,
    ) -> None:
        self.audit = AuditRepository(connection, observe_lock_wait_s)
        self.documents = DocumentRepository(connection)
        self.quarantine = QuarantineRepository(connection)
        self.leases = LeaseRepository(connection)
        self.results = ResultRepository(connection)
        self.replies = ReplyRepository(connection)
        self.statuses = StatusRepository(connection)
        self.loop_statuses = LoopStatusRepository(connection)
        self.tokens = TokenRepository(connection)
        self.diagnoses = DiagnosisRepository(connection)
        self.jobs = JobRepository(connection)
        self.workers = WorkerRepository(connection)
        self.retention = RetentionRepository(connection)
        self.write_probe = WriteProbeRepository(connection)
        self.inspection = InspectionRepository(connection)
        self.usage = UsageRepository(connection, counted)
        self.rates = RateUsageRepository(connection)
        self._connection = connection

    async def newest_id(self, kind: str) -> str | None:
        """Return the newest id of a job, of a result of this kind and of a diagnosis: their lists share ids."""
        found = (await self.jobs.newest_id(), await self.results.newest_id(kind), await self.diagnoses.newest_id())
        return max((each for each in found if each is not None), default=None)

    async def schema_revision(self) -> str | None:
        """Return the schema revision of the database; None before the first migration."""
        return await self._connection.run_sync(
            lambda connection: MigrationContext.configure(connection).get_current_revision()
        )


@dataclass(frozen=True, slots=True)
class PoolUsage:
    """Counts connections of this process."""

    in_use: int
    limit: int


class Store:
    """Opens transactions.

    `observe_wait_s` receives how long each of them waited for a connection, and `observe_lock_wait_s` how long a writer
    waited for others: `process` for those of this process, `audit` on PostgreSQL for the lock of the audit.
    """

    observe_wait_s: Callable[[float], None] = staticmethod(lambda _wait_s: None)
    observe_lock_wait_s: Callable[[str, float], None] = staticmethod(lambda _lock, _wait_s: None)

    def __init__(self, database_url: str) -> None:
        url = parse_url(database_url)
        self.is_shared = not is_sqlite(url)  # by several replicas
        self._engine = make_engine(url)
        self._single_reads = make_single_read_engine(url) if self.is_shared else self._engine
        self._counted: dict[str, Counted] = {}  # by project
        # SQLite has one writer.  On PostgreSQL all writers wait for the lock of the audit: the rest of the pool is for
        # readers.  This queue is fair and cheap; waiting in the database is neither.
        self._writers = asyncio.Semaphore(WRITERS if self.is_shared else 1)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        """Commit the whole block, or roll it back when it raises."""
        async with self._held():
            with translated_errors():
                async with self._connected(self._engine) as connection, connection.begin():
                    yield Transaction(connection, self._counted, self.observe_lock_wait_s if self.is_shared else None)

    @asynccontextmanager
    async def reading(self, *, single: bool = False) -> AsyncIterator[Transaction]:
        """Open a read-only block with one consistent view, which never blocks a writer.

        With `single` each statement on PostgreSQL has a view of its own: one needs no transaction, which would
        take two more round trips.
        """
        engine = self._single_reads if single else self._engine
        with translated_errors():
            async with self._connected(engine) as connection:
                if not (single and self.is_shared):
                    await connection.execution_options(**READ_ONLY[connection.dialect.name])
                yield Transaction(connection, self._counted)

    def pool_usage(self) -> PoolUsage:
        pools: set[Any] = {self._engine.pool, self._single_reads.pool}
        in_use = sum(pool.checkedout() for pool in pools)
        return PoolUsage(in_use=in_use, limit=POOL_LIMIT if self.is_shared else SQLITE_POOL)

    @asynccontextmanager
    async def _held(self) -> AsyncIterator[None]:
        """Wait for the other writers of this process."""
        started_s = time.monotonic()
        try:
            async with asyncio.timeout(LOCK_WAIT_S):
                await self._writers.acquire()
        except TimeoutError as error:
            raise failed(Failure.TIMEOUT, "the writers of this process") from error
        finally:
            self.observe_lock_wait_s("process", time.monotonic() - started_s)
        try:
            yield
        finally:
            self._writers.release()

    @asynccontextmanager
    async def _connected(self, engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
        started_s = time.monotonic()
        async with engine.connect() as connection:
            self.observe_wait_s(time.monotonic() - started_s)
            yield connection

    async def close(self) -> None:
        await self._engine.dispose()
        await self._single_reads.dispose()
