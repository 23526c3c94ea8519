"""Backups during writes, and their restore into either database with an intact chain."""

import asyncio
import shutil
import sqlite3
import stat
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import inspect, select

from api.store import (
    BackupError,
    DiagnosisHead,
    Migrations,
    NotEmptyError,
    ResultSummary,
    Store,
    StoredResult,
    back_up,
    check_chain,
    compare,
    read_backup,
    restore,
)
from api.store.engine import make_migration_engine, parse_url
from api.store.tables import Base
from tests.api.store.test_audit import tamper

NOW = datetime(2026, 11, 21, 6, 0, 0, 1, tzinfo=UTC)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "backup"


def write(database_url: str, count: int, *, action: str = "plan.created") -> None:
    """Write plans, diagnoses and documents with their audit entries."""

    async def write_all() -> None:
        store = Store(database_url)
        await write_to(store, count, action=action)
        await store.close()

    asyncio.run(write_all())


async def write_to(store: Store, count: int, *, action: str = "plan.created") -> None:
    for number in range(count):
        async with store.transaction() as tx:
            await tx.audit.lock()
            head = await tx.audit.head()
            plan_id = f"{head.seq:036}"
            summary = ResultSummary(kind="plan", id=plan_id, created_at=NOW, created_by="token:é", summary="{}")
            await tx.results.add(StoredResult(head=summary, request="{}", result=f'"{"r" * number}"'))
            diagnosis = DiagnosisHead(plan_id, NOW, "x", "job", "crash", "node", NOW, "{}", "f" * 64)
            await tx.diagnoses.add(diagnosis, bundle=bytes(range(256)))
            await tx.documents.add_version(
                kind="targets", name=f"t{head.seq}", after=0, body=None, created_at=NOW, created_by="x"
            )
            detail = {"plan": plan_id}
            await tx.audit.append(
                at=NOW, actor="token:é", action=action, subject="plans/1", detail=detail, request_id=None
            )


def rows_of(url: str) -> dict[str, list[Any]]:
    """Return every row of every table."""
    engine = make_migration_engine(parse_url(url))
    with engine.connect() as connection:
        assert set(inspect(connection).get_table_names()) == {*Base.metadata.tables, "alembic_version"}
        found = {
            name: sorted(map(tuple, connection.execute(select(table)).all()), key=str)
            for name, table in Base.metadata.tables.items()
        }
    engine.dispose()
    return found


def other_database(database_url: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return an empty database of the other kind."""
    if database_url.startswith("postgresql"):
        return f"sqlite+aiosqlite:///{tmp_path}/other.db"
    url: str = request.getfixturevalue("postgres_url")
    return url


def test_a_backup_restores_every_row_into_either_database(
    database_url: str, request: pytest.FixtureRequest, file: Path, tmp_path: Path
) -> None:
    write(database_url, 20)
    made = back_up(database_url, file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("backup")] == ["backup"]
    assert (made.audit.head.seq, made.rows["results"], made.rows["diagnoses"]) == (20, 20, 20)
    for url in (other_database(database_url, request, tmp_path), f"sqlite+aiosqlite:///{tmp_path}/elsewhere.db"):
        restored = restore(file, url)
        assert (restored.audit.head, restored.rows) == (made.audit.head, made.rows)
        assert rows_of(url) == rows_of(database_url)
    assert read_backup(file) == made


def test_a_restored_database_goes_on_and_keeps_its_audit_append_only(
    sqlite_url: str, empty_database_url: str, file: Path
) -> None:
    made = f"sqlite+aiosqlite:///{shutil.copy(sqlite_url.partition('///')[2], file.with_name('source.db'))}"
    write(made, 3)
    back_up(made, file)
    restore(file, empty_database_url, replace=True)
    write(empty_database_url, 2)
    assert check_chain(empty_database_url, full=True).head.seq == 5
    engine = make_migration_engine(parse_url(empty_database_url))
    with pytest.raises(Exception, match="append-only"), engine.begin() as connection:
        connection.execute(Base.metadata.tables["audit"].delete())
    engine.dispose()


@pytest.mark.anyio
async def test_backups_during_writes_are_consistent(database_url: str, tmp_path: Path) -> None:
    store, ending = Store(database_url), asyncio.Event()

    async def write_on() -> None:
        while not ending.is_set():
            await write_to(store, 1)

    writer = asyncio.create_task(write_on())
    files = [tmp_path / f"backup-{number}" for number in range(4)]
    made = [await asyncio.to_thread(back_up, database_url, file) for file in files]
    ending.set()
    await writer
    await store.close()
    lengths = [each.audit.head.seq for each in made]
    assert lengths == sorted(lengths)
    assert lengths[0] < lengths[-1]
    for each in made:
        # Each transaction writes one row of each: a backup has whole transactions only.
        assert {each.rows[table] for table in ("audit", "results", "diagnoses", "documents")} == {each.audit.head.seq}


def test_a_database_with_rows_is_replaced_on_request_only(database_url: str, file: Path) -> None:
    write(database_url, 4)
    made = back_up(database_url, file)
    write(database_url, 3, action="token.revoked")
    difference = compare(file, database_url)
    assert (difference.head.seq, difference.common_seq, dict(difference.newer)) == (7, 4, {"token.revoked": 3})
    before = rows_of(database_url)
    with pytest.raises(NotEmptyError):
        restore(file, database_url)
    assert rows_of(database_url) == before
    assert restore(file, database_url, replace=True).audit.head == made.audit.head
    assert compare(file, database_url).common_seq == 4
    assert dict(compare(file, database_url).newer) == {}


def test_a_database_of_an_older_schema_is_replaced(empty_database_url: str, sqlite_url: str, tmp_path: Path) -> None:
    source = f"sqlite+aiosqlite:///{shutil.copy(sqlite_url.partition('///')[2], tmp_path / 'source.db')}"
    write(source, 2)
    made = back_up(source, tmp_path / "backup")
    (tmp_path / "fleetwright.db").unlink()
    Migrations(empty_database_url).upgrade("r0004")
    assert restore(tmp_path / "backup", empty_database_url, replace=True).rows == made.rows
    assert Migrations(empty_database_url).current() == made.revision


def test_chains_that_part_are_compared_up_to_there(database_url: str, file: Path) -> None:
    write(database_url, 6)
    back_up(database_url, file)
    write(database_url, 2)
    tamper(database_url, "UPDATE audit SET hash = 'other' || seq WHERE seq > 3")
    difference = compare(file, database_url)
    assert (difference.common_seq, dict(difference.newer)) == (3, {"plan.created": 5})


def test_a_broken_chain_is_neither_backed_up_nor_restored(database_url: str, file: Path) -> None:
    write(database_url, 5)
    tamper(database_url, "UPDATE audit SET actor = 'nobody' WHERE seq = 3")
    with pytest.raises(BackupError, match="broken at entry 3"):
        back_up(database_url, file)
    assert not file.exists()
    broken = f"sqlite+aiosqlite:///{file}"
    Migrations(broken).upgrade()
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE audit_head SET seq = 1")
    before = rows_of(database_url)
    with pytest.raises(BackupError, match="broken at entry 1"):
        restore(file, database_url, replace=True)
    assert rows_of(database_url) == before


def test_a_backup_of_an_older_schema_is_restored_with_the_present_one(empty_database_url: str, tmp_path: Path) -> None:
    file = tmp_path / "old"
    old = f"sqlite+aiosqlite:///{file}"
    Migrations(old).upgrade("r0006")
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        with connection:
            connection.execute("INSERT INTO leases VALUES ('controller', 'a', 3, 4, 15.0)")
    before = file.read_bytes()
    restored = restore(file, empty_database_url)
    assert (restored.revision, restored.rows["leases"]) == (Migrations(old).head, 1)
    assert file.read_bytes() == before


def test_a_backup_never_overwrites_a_file(database_url: str, file: Path) -> None:
    file.write_text("precious")
    with pytest.raises(BackupError, match="exists, expected a new file"):
        back_up(database_url, file)
    assert file.read_text() == "precious"


@pytest.mark.parametrize("content", [b"not a database " * 1000, b""])
def test_a_file_that_is_no_backup_is_refused(sqlite_url: str, file: Path, content: bytes) -> None:
    file.write_bytes(content)
    with pytest.raises(BackupError):
        restore(file, sqlite_url, replace=True)
    assert Migrations(sqlite_url).current() is not None


def test_a_damaged_backup_is_refused(sqlite_url: str, file: Path) -> None:
    write(sqlite_url, 100)
    back_up(sqlite_url, file)
    content = bytearray(file.read_bytes())
    for start in range(8192, len(content), 8192):
        content[start : start + 1000] = bytes(1000)
    damaged = file.with_name("damaged")
    damaged.write_bytes(content)
    with pytest.raises(BackupError):
        restore(damaged, sqlite_url, replace=True)
    assert check_chain(sqlite_url, full=True).head.seq == 100
