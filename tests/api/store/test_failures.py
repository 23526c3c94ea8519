"""The cause of a failed transaction on real databases: full, read-only, out of time, without a table, ended."""

from collections.abc import Sequence

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from api.store import Failure
from api.store.engine import make_engine, parse_url
from api.store.failures import translated

pytestmark = pytest.mark.anyio


async def failure_of(url: str, statements: Sequence[str]) -> tuple[Failure, str] | None:
    """Run statements in one transaction; return the cause and the driver's code for the error of the last one."""
    engine = make_engine(parse_url(url))
    try:
        async with engine.connect() as connection:
            for statement in statements[:-1]:
                await connection.execute(text(statement))
            with pytest.raises(DBAPIError) as caught:
                await connection.execute(text(statements[-1]))
    finally:
        await engine.dispose()
    found = translated(caught.value)
    return None if found is None else (found.failure, found.cause)


@pytest.mark.parametrize(
    ("statements", "failure", "cause"),
    [
        (["PRAGMA max_page_count = 1", "CREATE TABLE more AS SELECT zeroblob(1000000)"], Failure.FULL, "SQLITE_FULL"),
        (["PRAGMA query_only = 1", "DELETE FROM tokens"], Failure.READ_ONLY, "SQLITE_READONLY"),
        (["SELECT * FROM nothing"], Failure.SCHEMA, "SQLITE_ERROR"),
    ],
)
async def test_sqlite_error_codes_give_the_cause(
    sqlite_url: str, statements: Sequence[str], failure: Failure, cause: str
) -> None:
    assert await failure_of(sqlite_url, statements) == (failure, f"OperationalError {cause}")


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
async def test_postgresql_error_codes_give_the_cause(
    migrated_postgres_url: str, statements: Sequence[str], failure: Failure, cause: str
) -> None:
    assert await failure_of(migrated_postgres_url, statements) == (failure, cause)


async def test_a_violated_constraint_is_no_failure_of_the_database(database_url: str) -> None:
    twice = "INSERT INTO audit_head VALUES (1, 0, 'a')"
    assert await failure_of(database_url, [twice]) is None
