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
from api.store.errors import DatabaseUnavailableError, UnknownRevisionError
from api.store.failures import translated

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
        return self._run(lambda connection: MigrationContext.configure(connection).get_current_revision())

    @property
    def first(self) -> str:
        """Is the revision that made the first tables, the audit among them."""
        (base,) = ScriptDirectory.from_config(self._config).get_bases()
        return base

    def undone_by(self, revision: str) -> list[str]:
        """Return the revisions that a downgrade undoes, newest first."""
        scripts = ScriptDirectory.from_config(self._config)

        def undone(connection: Connection) -> list[str]:
            current = MigrationContext.configure(connection).get_current_revision() or "base"
            found = scripts.iterate_revisions(current, revision, select_for_downgrade=True)
            return [script.revision for script in found]

        return self._run(undone)

    def upgrade(self, revision: str = "head") -> None:
        self._run(lambda connection: command.upgrade(self._with(connection), revision))

    def downgrade(self, revision: str) -> None:
        """Downgrade to a revision; `base` removes every table."""
        self._run(lambda connection: command.downgrade(self._with(connection), revision))

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
