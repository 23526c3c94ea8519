"""Migrations: up and down on both databases, with the schema of the declared tables."""

import threading

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, text

from api.store import Migrations, StoreError
from api.store.engine import make_migration_engine, parse_url
from api.store.migrate import SCRIPTS
from api.store.tables import Base


def table_names(database_url: str) -> set[str]:
    engine = make_migration_engine(parse_url(database_url))
    with engine.connect() as connection:
        names = set(inspect(connection).get_table_names())
    engine.dispose()
    return names


def test_every_revision_goes_up_and_down(empty_database_url: str) -> None:
    migrations = Migrations(empty_database_url)
    revisions = [script.revision for script in ScriptDirectory(str(SCRIPTS)).walk_revisions()]
    assert migrations.current() is None
    for revision in reversed(revisions):
        migrations.upgrade(revision)
        assert migrations.current() == revision
    assert migrations.current() == migrations.head
    for revision in [*revisions[1:], "base"]:
        migrations.downgrade(revision)
    assert migrations.current() is None
    assert table_names(empty_database_url) <= {"alembic_version"}
    migrations.upgrade()
    assert migrations.current() == migrations.head


def test_the_job_of_an_older_release_leaves_a_newer_schema(empty_database_url: str) -> None:
    """`helm rollback` runs it, and a SQLite service migrates when it starts."""
    migrations = Migrations(empty_database_url)
    migrations.upgrade()
    engine = make_migration_engine(parse_url(empty_database_url))
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = 'r9999'"))
    engine.dispose()
    migrations.upgrade()
    assert migrations.current() == "r9999"


def test_the_migrated_schema_matches_the_declared_tables(database_url: str) -> None:
    engine = make_migration_engine(parse_url(database_url))
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        differences = compare_metadata(context, Base.metadata)
    engine.dispose()
    assert differences == []


def test_concurrent_migrations_run_one_after_another(empty_database_url: str) -> None:
    errors: list[Exception] = []

    def migrate() -> None:
        try:
            Migrations(empty_database_url).upgrade()
        except Exception as error:  # noqa: BLE001 - reported by the assertion below
            errors.append(error)

    threads = [threading.Thread(target=migrate) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert Migrations(empty_database_url).current() == Migrations(empty_database_url).head


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("mysql://u:hunter2@h/d", "driver 'mysql'; allowed: sqlite\\+aiosqlite://… or postgresql\\+psycopg://…"),
        ("postgresql+psycopg://u:p@ss:hunter2@h/d", "not a database URL; allowed"),
        ("no url with hunter2", "not a database URL; allowed"),
        ("sqlite+aiosqlite://", "in-memory SQLite loses"),
        ("sqlite+aiosqlite:///:memory:", "in-memory SQLite loses"),
    ],
)
def test_an_invalid_url_is_refused_without_its_password(url: str, message: str) -> None:
    with pytest.raises(StoreError, match=message) as caught:
        Migrations(url)
    assert "hunter2" not in str(caught.value)


def test_revision_names_sort_by_age() -> None:
    """`/readyz` of an older release compares revisions as text."""
    revisions = [script.revision for script in ScriptDirectory(str(SCRIPTS)).walk_revisions()]
    assert revisions == sorted(revisions, reverse=True)
    assert revisions == [f"r{number:04}" for number in range(len(revisions), 0, -1)]
