"""Runs one test on both databases: SQLite in a temporary folder, and PostgreSQL from the machine."""

from pathlib import Path

import pytest

from api.store import Migrations


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def empty_database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of a database without tables, on SQLite and then on PostgreSQL."""
    if request.param == "sqlite":
        return f"sqlite+aiosqlite:///{tmp_path}/fleetwright.db"
    url: str = request.getfixturevalue("postgres_url")
    return url


@pytest.fixture
def database_url(empty_database_url: str) -> str:
    """Return the URL of a migrated database."""
    Migrations(empty_database_url).upgrade()
    return empty_database_url


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """Return a migrated SQLite database, for tests that do not depend on the database."""
    url = f"sqlite+aiosqlite:///{tmp_path}/fleetwright.db"
    Migrations(url).upgrade()
    return url


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Run async tests on asyncio, as the service does."""
    return "asyncio"
