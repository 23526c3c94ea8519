"""Migrates the schema up and down with Alembic.

The calls block: a service runs them in a thread before it accepts requests.  On PostgreSQL an advisory lock serialises
processes that migrate at the same time.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.script.revision import RevisionError
from alembic.util import CommandError
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from api.store.engine import is_sqlite, make_migration_engine, parse_url
from api.store.errors import DatabaseUnavailableError, NotEmptyError, UnknownRevisionError
from api.store.failures import translated
from api.store.tables import Base

SCRIPTS = Path(__file__).parent / "migrations"
ResultT = TypeVar("ResultT")
ADVISORY_LOCK_KEY = 0x666C6565_74777269  # "fleetwri"


class Migrations:
    def __init__(self, database_url: str) -> None:
        self._url = parse_url(database_url)
        self._config = Config()
        self._config.set_main_option("script_location", str(SCRIPTS).replace("%", "%%"))

    @property
    def head(self) -> str:
        """Is the newest revision of this program."""
        head = ScriptDirectory.from_config(self._config).get_current_head()
        if head is None:  # pragma: no cover - the package without its migrations
            raise DatabaseUnavailableError("this installation contains no migrations")
        return head

    def current(self) -> str | None:
        """Return the revision of the database; None before the first migration."""
        return self._run(self.revision_of)

    @staticmethod
    def revision_of(connection: Connection) -> str | None:
        return MigrationContext.configure(connection).get_current_revision()

    @property
    def first(self) -> str:
        """Is the revision that made the first tables, the audit among them."""
        (base,) = ScriptDirectory.from_config(self._config).get_bases()
        return base

    def undone_by(self, revision: str) -> list[str]:
        """Return the revisions that a downgrade undoes, newest first."""
        scripts = ScriptDirectory.from_config(self._config)

        def undone(connection: Connection) -> list[str]:
            current = self.revision_of(connection) or "base"
            found = scripts.iterate_revisions(current, revision, select_for_downgrade=True)
            return [script.revision for script in found]

        return self._run(undone)

    def upgrade(self, revision: str = "head") -> None:
        """Upgrade to a revision.  A schema that is newer than this program stays: it is compatible with this release,
        and a rollback must start.
        """

        def upgraded(connection: Connection) -> None:
            current = self.revision_of(connection)
            if revision != "head" or current is None or current <= self.head:
                command.upgrade(self._with(connection), revision)

        self._run(upgraded)

    def downgrade(self, revision: str) -> None:
        """Downgrade to a revision; `base` removes every table."""
        self._run(lambda connection: command.downgrade(self._with(connection), revision))

    def refill(self, fill: Callable[[Connection], ResultT], *, may_drop: Callable[[Connection], bool]) -> ResultT:
        """Make all tables again and fill them, in one transaction; NotEmptyError where `may_drop` refuses."""

        def refilled(connection: Connection) -> ResultT:
            if self.revision_of(connection) is not None:
                if not may_drop(connection):
                    raise NotEmptyError("the database is not empty")
                command.upgrade(self._with(connection), "head")
                _drop_tables(connection)
            command.upgrade(self._with(connection), "head")
            return fill(connection)

        return self._run(refilled)

    def _with(self, connection: Connection) -> Config:
        self._config.attributes["connection"] = connection
        return self._config

    def _run(self, work: Callable[[Connection], ResultT]) -> ResultT:
        engine = make_migration_engine(self._url)
        try:
            with engine.begin() as connection:
                if not is_sqlite(self._url):
                    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": ADVISORY_LOCK_KEY})
                return work(connection)
        except (CommandError, RevisionError) as error:
            raise UnknownRevisionError(str(error)) from error
        except DBAPIError as error:
            # Only the first line: the rest may contain statements and settings.
            raise (translated(error) or DatabaseUnavailableError(str(error).splitlines()[0])) from error
        finally:
            engine.dispose()


def _drop_tables(connection: Connection) -> None:
    """Drop the tables of the newest revision.  A downgrade would convert their rows first."""
    Base.metadata.drop_all(connection)
    connection.execute(text("DROP TABLE alembic_version"))
    if connection.dialect.name == "postgresql":
        connection.execute(text("DROP FUNCTION audit_refuse"))  # of the first migration; SQLite has only triggers
