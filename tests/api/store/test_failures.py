"""Why a transaction failed, on real databases: a full disk, a read-only database, a held lock, a wrong statement."""

from collections.abc import Sequence

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from api.store import DatabaseUnavailableError, Failure
from api.store.engine import make_engine, parse_url
from api.store.failures import translated

pytestmark = pytest.mark.anyio


async def failed(url: str, *statements: str) -> DatabaseUnavailableError | None:
    """Run statements in one transaction; translate the error of the last one."""
    engine = make_engine(parse_url(url))
    try:
        async with engine.connect() as connection:
            for statement in statements[:-1]:
                await connection.execute(text(statement))
            with pytest.raises(DBAPIError) as caught:
                await connection.execute(text(statements[-1]))
    finally:
        await engine.dispose()
    return translated(caught.value)


@pytest.mark.parametrize(
    ("statements", "failure", "cause"),
    [
        (["PRAGMA max_page_count = 1", "CREATE TABLE more AS SELECT zeroblob(1000000)"], Failure.FULL, "SQLITE_FULL"),
        (["PRAGMA query_only = 1", "DELETE FROM tokens"], Failure.READ_ONLY, "SQLITE_READONLY"),
        (["SELECT * FROM nothing"], Failure.SCHEMA, "SQLITE_ERROR"),
    ],
)
async def test_sqlite_failures_are_told_apart(
    sqlite_url: str, statements: Sequence[str], failure: Failure, cause: str
) -> None:
    found = await failed(sqlite_url, *statements)
    assert found is not None
    assert (found.failure, found.cause) == (failure, f"OperationalError {cause}")


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("statements", "failure", "cause"),
    [
        (["SET TRANSACTION READ ONLY", "DELETE FROM tokens"], Failure.READ_ONLY, "ReadOnlySqlTransaction 25006"),
        (["SET statement_timeout = 1", "SELECT pg_sleep(10)"], Failure.TIMEOUT, "QueryCanceled 57014"),
        (["SELECT * FROM nothing"], Failure.SCHEMA, "UndefinedTable 42P01"),
        (["SELECT pg_terminate_backend(pg_backend_pid())"], Failure.UNAVAILABLE, "AdminShutdown 57P01"),
    ],
)
async def test_postgresql_failures_are_told_apart(
    migrated_postgres_url: str, statements: Sequence[str], failure: Failure, cause: str
) -> None:
    found = await failed(migrated_postgres_url, *statements)
    assert found is not None
    assert (found.failure, found.cause) == (failure, cause)


async def test_a_violated_constraint_is_no_failure_of_the_database(database_url: str) -> None:
    twice = "INSERT INTO audit_head VALUES (1, 0, 'a')"
    assert await failed(database_url, twice) is None
