"""Creates engines for both databases.  An acknowledged write survives `kill -9` and power loss."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, create_engine, event, make_url
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from api.store.errors import StoreError
from api.store.time_limits import limit_postgresql, limit_sqlite

SQLITE_BUSY_TIMEOUT_MS = 10_000
SQLITE_POOL = 10
# Connections per process on PostgreSQL: well under its default of 100 with several replicas.
TRANSACTION_POOL = 9
SINGLE_READ_POOL = 6
POOL_LIMIT = TRANSACTION_POOL + SINGLE_READ_POOL
# Short: what waits here has not begun, and its caller may try again.
POOL_TIMEOUT_S = 6.0
CONNECT_TIMEOUT_S = 6

DRIVERS = ("sqlite+aiosqlite", "postgresql+psycopg")
# On SQLite a writer takes the lock at once: a deferred transaction that starts to write fails with SQLITE_BUSY
# immediately, whatever the timeout.  Readers begin deferred.
# All statements of a reading block have one consistent view: always on SQLite, by isolation level on PostgreSQL.
READ_ONLY: Mapping[str, Mapping[str, Any]] = {
    "sqlite": {"sqlite_begin": "DEFERRED"},
    "postgresql": {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True},
}


def parse_url(database_url: str) -> URL:
    """Accept only a URL with a supported driver and a persistent place."""
    allowed = "allowed: " + " or ".join(f"{driver}://…" for driver in DRIVERS)
    try:
        url = make_url(database_url)
    except (ArgumentError, ValueError):
        # The driver's messages repeat the URL; an unescaped @ or : in a password would appear in them.
        raise StoreError(f"database_url: not a database URL; {allowed}") from None
    if url.drivername not in DRIVERS:
        raise StoreError(f"database_url: driver {url.drivername!r}; {allowed}")
    if is_sqlite(url) and url.database in {None, "", ":memory:"}:
        raise StoreError("database_url: an in-memory SQLite loses acknowledged writes; allowed: a file path")
    return url


def is_sqlite(url: URL) -> bool:
    return url.get_backend_name() == "sqlite"


def database_file(database_url: str) -> Path | None:
    """Return the file of an SQLite database; None for a server."""
    try:
        url = parse_url(database_url)
    except StoreError:  # its message names what is wrong where the database is opened
        return None
    return Path(url.database) if is_sqlite(url) and url.database is not None else None


def make_engine(url: URL) -> AsyncEngine:
    if not is_sqlite(url):
        return _on_postgresql(url, pool_size=TRANSACTION_POOL)
    engine = create_async_engine(
        url, pool_size=SQLITE_POOL, max_overflow=0, pool_timeout=POOL_TIMEOUT_S, hide_parameters=True
    )
    _make_durable(engine.sync_engine)
    limit_sqlite(engine)
    return engine


def make_single_read_engine(url: URL) -> AsyncEngine:
    """Create an engine on PostgreSQL for single statements, whose connections never begin a transaction.

    To switch a connection of the other pool, and back, takes as long as the statement.
    """
    return _on_postgresql(
        url,
        pool_size=SINGLE_READ_POOL,
        isolation_level="AUTOCOMMIT",
        pool_reset_on_return=None,
    )


def _on_postgresql(url: URL, **options: Any) -> AsyncEngine:
    engine = create_async_engine(
        url,
        max_overflow=0,  # to connect takes longer than to wait
        pool_timeout=POOL_TIMEOUT_S,
        hide_parameters=True,  # statements in errors and logs carry no values
        connect_args={"connect_timeout": CONNECT_TIMEOUT_S},
        **options,
    )
    limit_postgresql(engine)
    return engine


def make_migration_engine(url: URL) -> Engine:
    """Create a blocking engine on the same database."""
    if not is_sqlite(url):
        return create_engine(url, hide_parameters=True, connect_args={"connect_timeout": CONNECT_TIMEOUT_S})
    engine = create_engine(url.set(drivername="sqlite"), hide_parameters=True)
    _make_durable(engine)
    return engine


def _make_durable(engine: Engine) -> None:
    event.listen(engine, "connect", _configure_sqlite)
    event.listen(engine, "begin", _begin_sqlite)


def _configure_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # the driver's own BEGIN comes late, and not for every statement
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout = {SQLITE_BUSY_TIMEOUT_MS}")
    cursor.execute("PRAGMA page_count")
    if cursor.fetchone() == (0,):  # on another file the next statement would wait for the writer
        cursor.execute("PRAGMA auto_vacuum = INCREMENTAL")  # removed rows then give their pages back
    cursor.execute("PRAGMA journal_mode = WAL")  # readers never wait for the writer
    cursor.execute("PRAGMA synchronous = FULL")  # a commit is on the disk before it is acknowledged
    cursor.close()


def _begin_sqlite(connection: Any) -> None:
    mode = connection.get_execution_options().get("sqlite_begin", "IMMEDIATE")
    connection.exec_driver_sql(f"BEGIN {mode}")
