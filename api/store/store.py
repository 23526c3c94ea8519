"""Provides transactions over all repositories."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext

from alembic.runtime.migration import MigrationContext
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncConnection

from api.store.audit import AuditRepository
from api.store.engine import READ_ONLY, is_sqlite, make_engine, parse_url
from api.store.failures import translated
from api.store.jobs import JobRepository, WorkerRepository
from api.store.repositories import (
    DiagnosisRepository,
    DocumentRepository,
    LeaseRepository,
    QuarantineRepository,
    ReplyRepository,
    ResultRepository,
    StatusRepository,
    TokenRepository,
)


class Transaction:
    """Joins all repositories over one connection; commits as a whole."""

    def __init__(self, connection: AsyncConnection) -> None:
        self.audit = AuditRepository(connection)
        self.documents = DocumentRepository(connection)
        self.quarantine = QuarantineRepository(connection)
        self.leases = LeaseRepository(connection)
        self.results = ResultRepository(connection)
        self.replies = ReplyRepository(connection)
        self.statuses = StatusRepository(connection)
        self.tokens = TokenRepository(connection)
        self.diagnoses = DiagnosisRepository(connection)
        self.jobs = JobRepository(connection)
        self.workers = WorkerRepository(connection)
        self._connection = connection

    async def schema_revision(self) -> str | None:
        """Return the schema revision of the database; None before the first migration."""
        return await self._connection.run_sync(
            lambda connection: MigrationContext.configure(connection).get_current_revision()
        )


class Store:
    def __init__(self, database_url: str) -> None:
        url = parse_url(database_url)
        self._engine = make_engine(url)
        # SQLite has one writer.  This lock is fair and cheap; SQLite's busy handler is neither.
        self._writer = asyncio.Lock() if is_sqlite(url) else nullcontext()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        """Commit the whole block, or roll it back when it raises."""
        async with self._writer:
            with _translated():
                async with self._engine.begin() as connection:
                    yield Transaction(connection)

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Transaction]:
        """Open a read-only block with one consistent view, which never blocks a writer."""
        with _translated():
            async with self._engine.connect() as connection:
                await connection.execution_options(**READ_ONLY[connection.dialect.name])
                yield Transaction(connection)

    async def close(self) -> None:
        await self._engine.dispose()


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (DBAPIError, PoolTimeoutError) as error:
        if (found := translated(error)) is None:
            raise
        raise found from error
