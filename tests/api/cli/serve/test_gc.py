"""`gc`: removes or counts old rows of the configured database."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from api.store import ResultSummary, Store, StoredResult, new_id
from tests.testbed.cli import Cli


@pytest.fixture
def database(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Configure a database with a plan of each month of two years."""
    asyncio.run(write_plans(sqlite_url))
    monkeypatch.setenv("FLEETWRIGHT_DATABASE_URL", sqlite_url)
    return sqlite_url


async def write_plans(url: str) -> None:
    store = Store(url)
    async with store.transaction() as tx:
        for month in range(24):
            made = datetime.now(UTC) - timedelta(days=30 * month + 1)
            head = ResultSummary(kind="plan", id=new_id(made), created_at=made, created_by="x", summary="{}")
            await tx.results.add(StoredResult(head=head, request="{}", result="{}"))
    await store.close()


def test_a_dry_run_counts_and_a_run_removes(database: str, cli: Cli) -> None:
    del database
    counted = cli("gc", "--dry-run")
    assert (counted.code, counted.stdout.splitlines()[-1]) == (0, "11 rows would be removed")
    assert cli("gc", "-o", "json").json == {"plans": 11}
    assert cli("gc").stdout.splitlines()[-1] == "0 rows removed"


def test_a_setting_decides_how_long_rows_stay(database: str, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    del database
    monkeypatch.setenv("FLEETWRIGHT_RETENTION_PLANS_DAYS", "100")
    assert cli("gc", "-o", "json").json == {"plans": 20}
    monkeypatch.setenv("FLEETWRIGHT_RETENTION_PLANS_DAYS", "0")
    done = cli("gc")
    assert done.code == 2
    assert done.refused[0].startswith("settings: FLEETWRIGHT_RETENTION_PLANS_DAYS: ")


def test_a_database_of_another_schema_is_refused(cli: Cli, database: str) -> None:
    del database
    assert cli("migrate", "down", "--yes", "--", "-1").code == 0
    done = cli("gc")
    assert (done.code, len(done.refused)) == (1, 1)
    assert done.refused[0].endswith("run `fleetwright migrate up`")
