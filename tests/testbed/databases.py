"""Both databases, one test: SQLite in a temporary folder, PostgreSQL from the machine."""

from pathlib import Path

import pytest

from api.store import Migrations


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def empty_database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database without any table, on SQLite and then on PostgreSQL."""
    if request.param == "sqlite":
        return f"sqlite+aiosqlite:///{tmp_path}/fleetwright.db"
    url: str = request.getfixturevalue("postgres_url")
    return url


@pytest.fixture
def database_url(empty_database_url: str) -> str:
    """The same, migrated."""
    Migrations(empty_database_url).upgrade()
    return empty_database_url


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """A migrated SQLite database, for tests to which the database does not matter."""
    url = f"sqlite+aiosqlite:///{tmp_path}/fleetwright.db"
    Migrations(url).upgrade()
    return url


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Async tests run on asyncio, as the service does."""
    return "asyncio"
