"""Runs one test on both databases: SQLite in a temporary folder, and PostgreSQL from the machine."""

import shutil
from pathlib import Path

import pytest

from api.store import Migrations


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def database(request: pytest.FixtureRequest) -> str:
    """Name the database of the test."""
    name: str = request.param
    return name


@pytest.fixture
def empty_database_url(database: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of a database without tables, on SQLite and then on PostgreSQL."""
    if database == "sqlite":
        return f"sqlite+aiosqlite:///{tmp_path}/fleetwright.db"
    url: str = request.getfixturevalue("postgres_url")
    return url


@pytest.fixture
def database_url(database: str, request: pytest.FixtureRequest) -> str:
    """Return the URL of a migrated database, on SQLite and then on PostgreSQL."""
    url: str = request.getfixturevalue("sqlite_url" if database == "sqlite" else "migrated_postgres_url")
    return url


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a migrated SQLite database to copy: a migration takes a tenth of a second."""
    path = tmp_path_factory.mktemp("migrated") / "fleetwright.db"
    Migrations(f"sqlite+aiosqlite:///{path}").upgrade()
    return path


@pytest.fixture
def sqlite_url(migrated_file: Path, tmp_path: Path) -> str:
    """Return a migrated SQLite database, for tests that do not depend on the database."""
    path = shutil.copy(migrated_file, tmp_path / "fleetwright.db")
    return f"sqlite+aiosqlite:///{path}"


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Run async tests on asyncio, as the service does."""
    return "asyncio"
