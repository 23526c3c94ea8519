"""`backup` and `restore`: files of the configured database, and what a restore loses."""

import asyncio
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

import pytest

from api.store import Store
from tests.testbed.cli import Cli
from tests.testbed.server import StartServer

NOW = datetime(2026, 11, 21, tzinfo=UTC)


@pytest.fixture
def database(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("FLEETWRIGHT_DATABASE_URL", sqlite_url)
    append(sqlite_url, "token.created")
    return sqlite_url


def append(url: str, action: str) -> None:
    async def write() -> None:
        store = Store(url)
        async with store.transaction() as tx:
            await tx.audit.append(at=NOW, actor="token:x", action=action, subject="s", detail={}, request_id=None)
        await store.close()

    asyncio.run(write())


def test_a_backup_is_restored_into_an_empty_database(
    database: str, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del database
    made = cli("backup", tmp_path / "backup")
    assert made.code == 0
    *_table, last = made.stdout.splitlines()
    assert last.startswith("schema r0008, 1 audit entries, intact; last entry 1:")
    monkeypatch.setenv("FLEETWRIGHT_DATABASE_URL", f"sqlite+aiosqlite:///{tmp_path}/new.db")
    restored = cli("restore", tmp_path / "backup")
    assert (restored.code, restored.stdout) == (0, made.stdout)
    assert cli("migrate", "status").code == 0


def test_a_restore_over_a_database_needs_an_option_and_names_what_is_lost(
    database: str, cli: Cli, tmp_path: Path
) -> None:
    cli("backup", tmp_path / "backup")
    append(database, "token.revoked")
    lost = [
        "the database has 3 audit entries, 1 of them are in the backup",
        "not in the backup: 1 database.backed-up, 1 token.revoked",
    ]
    refused = cli("restore", tmp_path / "backup")
    assert (refused.code, refused.refused) == (1, ["the database is not empty; --replace restores over it", *lost])
    done = cli("restore", tmp_path / "backup", "--replace", "-o", "json")
    assert done.stderr.splitlines() == lost
    assert (done.json["audit_entries"], done.json["lost"]) == (1, {"database.backed-up": 1, "token.revoked": 1})


def test_a_database_of_a_running_server_is_not_replaced(
    database: str, cli: Cli, start_server: StartServer, tmp_path: Path
) -> None:
    start_server(database)
    assert cli("backup", tmp_path / "backup").code == 0
    done = cli("restore", tmp_path / "backup", "--replace")
    assert done.code == 1
    assert "another server uses it" in done.refused[0]


@pytest.mark.parametrize("command", ["backup", "restore"])
def test_wrong_files_are_reported_in_one_line(command: str, database: str, cli: Cli, tmp_path: Path) -> None:
    del database
    wrong = {"backup": tmp_path / "taken", "restore": tmp_path / "text"}[command]
    wrong.write_text("no database " * 1000)
    done = cli(command, wrong)
    assert (done.code, len(done.refused)) == (1, 1)
    assert str(wrong) in done.refused[0]
    nowhere = cli(command, tmp_path / "nowhere" / "file")
    assert (nowhere.code > 0, len(nowhere.refused)) == (True, 1)


def test_the_backup_is_a_file_that_sqlite_reads(database: str, cli: Cli, tmp_path: Path) -> None:
    del database
    cli("backup", tmp_path / "backup")
    connection = sqlite3.connect(tmp_path / "backup")
    assert connection.execute("SELECT action FROM audit").fetchall() == [("token.created",)]
    connection.close()
