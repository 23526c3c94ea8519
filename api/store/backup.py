"""Backs a database up into one file while it is in use, and restores such a file into either database.

The file is an SQLite database with the tables of this program, whichever database it comes from: so a backup also moves
an installation from SQLite to PostgreSQL.  Rows are copied a few at a time.  A restore is one transaction: it ends with
the whole backup and an intact audit chain, or changes nothing.
"""

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, NullPool, create_engine, delete, func, insert, inspect, select
from sqlalchemy.exc import DatabaseError

from api.store.audit_chain import GENESIS, ChainCheck, ChainPlace, check_connection
from api.store.engine import READ_ONLY, is_sqlite, make_migration_engine, parse_url
from api.store.errors import StoreError
from api.store.failures import translated_errors
from api.store.migrate import Migrations
from api.store.tables import AuditHeadRow, AuditRow, Base

ROWS_AT_ONCE: Final = 1_000
LARGE_ROWS_AT_ONCE: Final = 4  # each may have megabytes
LARGE: Final = frozenset({"results", "diagnoses", "replies", "jobs"})
TABLES: Final = Base.metadata.sorted_tables
OF_EMPTY_DATABASES: Final = frozenset({AuditHeadRow.__tablename__})  # the first migration fills it


# Receives what is done, how much of it, and the total; None: unknown.
OnProgress = Callable[[str, int, int | None], None]


class BackupError(StoreError):
    """A backup or a restore was refused, or failed."""


@dataclass(frozen=True, slots=True)
class Contents:
    """Describes a backup or a restored database."""

    revision: str
    audit: ChainCheck
    rows: Mapping[str, int]  # by table


@dataclass(frozen=True, slots=True)
class Difference:
    """Describes what a database has that a backup has not."""

    head: ChainPlace  # of the database
    common_seq: int  # the last audit entry of both
    newer: Mapping[str, int]  # audit entries after that, by action

    @property
    def is_empty(self) -> bool:
        return self.head == GENESIS


def no_progress(_phase: str, _done: int, _total: int | None) -> None:
    """Ignore the progress."""


def back_up(database_url: str, file: Path, *, on_progress: OnProgress = no_progress) -> Contents:
    """Write a consistent copy of a database into a new file."""
    url = parse_url(database_url)
    if file.exists():
        raise BackupError(f"{file} exists, expected a new file")
    partial = file.with_name(f"{file.name}.partial")
    partial.unlink(missing_ok=True)
    os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))  # it has hashes of tokens
    try:
        if is_sqlite(url):
            on_progress("copying the file", 0, None)
            _copy_sqlite(Path(url.database or ""), partial)
        else:
            _copy_postgresql(database_url, partial, on_progress)
        contents = read_backup(partial, on_progress=on_progress)
        with partial.open("rb") as written:
            os.fsync(written.fileno())
        partial.rename(file)
    finally:
        partial.unlink(missing_ok=True)
    return contents


def read_backup(file: Path, *, on_progress: OnProgress = no_progress) -> Contents:
    """Check a backup, and describe it; BackupError when it is damaged."""
    with _opened(file) as backup:
        revision = Migrations.revision_of(backup)
        if revision is None:
            raise BackupError(f"{file} has no tables of this program")
        checked = _checked(backup, on_progress) if _has_checkpoints(backup) else None
        present = set(inspect(backup).get_table_names())
        rows = {table.name: _count(backup, table) for table in TABLES if table.name in present}
    if checked is None:
        with _upgraded(file) as newer:
            return Contents(revision, read_backup(newer, on_progress=on_progress).audit, rows)
    if not checked.intact:
        raise BackupError(f"{file}: its audit is broken at entry {checked.first_broken_seq}")
    return Contents(revision, checked, rows)


def compare(file: Path, database_url: str) -> Difference:
    """Describe what a restore of a backup would lose."""
    engine = make_migration_engine(parse_url(database_url))
    try:
        with _opened(file) as backup, translated_errors(), engine.connect() as database:
            database.execution_options(**READ_ONLY[database.dialect.name])
            if not inspect(database).has_table(AuditRow.__tablename__):
                return Difference(GENESIS, 0, {})
            head, common_seq = _head(database), _common_seq(backup, database)
            counted = select(AuditRow.action, func.count().label("entries")).group_by(AuditRow.action)
            query = counted.where(AuditRow.seq > common_seq)
            newer = {row.action: row.entries for row in database.execute(query.order_by(AuditRow.action))}
            return Difference(head, common_seq, newer)
    finally:
        engine.dispose()


def restore(file: Path, database_url: str, *, replace: bool = False, on_progress: OnProgress = no_progress) -> Contents:
    """Fill an empty database with a backup; with `replace`, whatever the database holds."""
    contents = read_backup(file, on_progress=on_progress)
    migrations = Migrations(database_url)
    is_current = contents.revision == migrations.head
    with nullcontext(file) if is_current else _upgraded(file) as current, _opened(current) as backup:

        def fill(database: Connection) -> Contents:
            rows = _copy_rows(backup, database, on_progress)
            checked = _checked(database, on_progress)
            if not checked.intact or checked.head != contents.audit.head:
                raise BackupError("the audit did not arrive whole: nothing was changed")
            return Contents(migrations.head, checked, rows)

        return migrations.refill(fill, may_drop=lambda database: replace or _is_empty(database))


def _copy_sqlite(source: Path, target: Path) -> None:
    with (
        closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=rw", uri=True)) as database,
        closing(sqlite3.connect(target)) as copy,
    ):
        database.backup(copy)  # in one step: a snapshot, which no writer waits for
        copy.execute("PRAGMA journal_mode = DELETE")  # one file


def _copy_postgresql(database_url: str, target: Path, on_progress: OnProgress) -> None:
    migrations, copy = Migrations(database_url), Migrations(f"sqlite+aiosqlite:///{target}")
    if (revision := migrations.current()) != migrations.head:
        raise BackupError(f"the schema is at {revision or 'nothing'}, this program backs up {migrations.head}")
    copy.upgrade()
    source = make_migration_engine(parse_url(database_url))
    try:
        with source.connect() as database:
            database.execution_options(**READ_ONLY["postgresql"])
            copy.refill(
                lambda connection: _copy_rows(database, connection, on_progress), may_drop=lambda _connection: True
            )
    finally:
        source.dispose()
    with closing(sqlite3.connect(target)) as written:
        written.execute("PRAGMA journal_mode = DELETE")


def _copy_rows(source: Connection, target: Connection, on_progress: OnProgress) -> dict[str, int]:
    counts: dict[str, int] = {}
    total = sum(_count(source, table) for table in TABLES)
    for table in TABLES:
        if table.name in OF_EMPTY_DATABASES:
            target.execute(delete(table))
        count, at_once = 0, LARGE_ROWS_AT_ONCE if table.name in LARGE else ROWS_AT_ONCE
        streamed = source.execution_options(stream_results=True, yield_per=at_once)
        for rows in streamed.execute(select(table)).mappings().partitions():
            target.execute(insert(table), [dict(row) for row in rows])
            count += len(rows)
            on_progress(f"copying {table.name}", sum(counts.values()) + count, total)
        counts[table.name] = count
    return counts


def _checked(connection: Connection, on_progress: OnProgress) -> ChainCheck:
    def report(done: int, total: int) -> None:
        on_progress("verifying the audit", done, total)

    return check_connection(connection, full=True, on_progress=report)


def _is_empty(database: Connection) -> bool:
    present = set(inspect(database).get_table_names())
    return not any(_count(database, table) for table in TABLES if table.name in present - OF_EMPTY_DATABASES)


def _count(connection: Connection, table: Any) -> int:
    return int(connection.execute(select(func.count()).select_from(table)).scalar_one())


def _head(connection: Connection) -> ChainPlace:
    row = connection.execute(select(AuditHeadRow.seq, AuditHeadRow.hash)).one()
    return ChainPlace(row.seq, row.hash)


def _common_seq(one: Connection, other: Connection) -> int:
    """Return the last entry with the same hash in both: from the first different one on, all are different."""
    low, high = 0, min(_head(one).seq, _head(other).seq)
    while low < high:
        middle = (low + high + 1) // 2
        query = select(AuditRow.hash).where(AuditRow.seq == middle)
        is_same = one.execute(query).scalar_one_or_none() == other.execute(query).scalar_one_or_none()
        low, high = (middle, high) if is_same else (low, middle - 1)
    return low


def _has_checkpoints(backup: Connection) -> bool:
    return inspect(backup).has_table("audit_checkpoints")


@contextmanager
def _opened(file: Path) -> Iterator[Connection]:
    """Open a backup without changing it."""
    uri = f"{file.absolute().as_uri()}?mode=ro"
    engine = create_engine("sqlite://", creator=lambda: sqlite3.connect(uri, uri=True), poolclass=NullPool)
    try:
        with engine.connect() as connection:
            yield connection
    except DatabaseError as error:
        if error.connection_invalidated or not isinstance(error.orig, sqlite3.DatabaseError):
            raise
        raise BackupError(f"{file} cannot be read as a backup: {error.orig}") from error
    finally:
        engine.dispose()


@contextmanager
def _upgraded(file: Path) -> Iterator[Path]:
    """Yield a copy of a backup with the schema of this program."""
    with tempfile.TemporaryDirectory(prefix="fleetwright-restore-") as folder:
        copy = Path(folder) / "backup.db"
        shutil.copyfile(file, copy)
        Migrations(f"sqlite+aiosqlite:///{copy}").upgrade()
        with closing(sqlite3.connect(copy)) as written:
            written.execute("PRAGMA journal_mode = DELETE")
        yield copy
