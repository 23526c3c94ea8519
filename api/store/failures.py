"""Maps error codes of SQLite and PostgreSQL to the cause of a failed transaction."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, ProgrammingError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from api.store.errors import DatabaseUnavailableError, Failure

_MESSAGES: Final[Mapping[Failure, str]] = {
    Failure.UNAVAILABLE: "the database does not respond",
    Failure.SCHEMA: "the schema of the database is not the one that this program needs",
    Failure.FULL: "the disk of the database is full",
    Failure.READ_ONLY: "the database is read-only",
    Failure.TIMEOUT: "the database did not answer in time",
    Failure.LOCKED: "another transaction of the database holds a lock for too long",
    Failure.DEADLOCK: "two writers waited for each other",
}
# SQLite's names begin with the primary code: SQLITE_READONLY_DBMOVED.
_SQLITE: Final[Mapping[str, Failure]] = {
    "SQLITE_ERROR": Failure.SCHEMA,  # a statement that names a missing table or column
    "SQLITE_FULL": Failure.FULL,
    "SQLITE_READONLY": Failure.READ_ONLY,
    "SQLITE_BUSY": Failure.TIMEOUT,
    "SQLITE_LOCKED": Failure.TIMEOUT,
    "SQLITE_INTERRUPT": Failure.TIMEOUT,  # by `time_limits`
}
_SQLSTATES: Final[Mapping[str, Failure]] = {
    "25006": Failure.READ_ONLY,  # read_only_sql_transaction, as on a standby
    "40001": Failure.DEADLOCK,  # serialization_failure
    "40P01": Failure.DEADLOCK,  # deadlock_detected
    "53100": Failure.FULL,  # disk_full
    "55P03": Failure.LOCKED,  # lock_not_available
    "57014": Failure.TIMEOUT,  # query_canceled, by a time limit
}


def translated(error: DBAPIError | PoolTimeoutError) -> DatabaseUnavailableError | None:
    """Return the error of the store; None where the statement itself is wrong."""
    if isinstance(error, PoolTimeoutError):
        return failed(Failure.TIMEOUT, "PoolTimeoutError")
    code = _code(error.orig)
    cause = f"{type(error.orig).__name__} {code}".strip()
    if (known := _known(code)) is not None:
        return failed(known, cause)
    if isinstance(error, ProgrammingError):  # a missing table or column
        return failed(Failure.SCHEMA, cause)
    if isinstance(error, OperationalError | InterfaceError) or error.connection_invalidated:
        return failed(Failure.UNAVAILABLE, cause)
    return None


@contextmanager
def translated_errors() -> Iterator[None]:
    """Raise the errors of the store in place of those of the driver."""
    try:
        yield
    except (DBAPIError, PoolTimeoutError) as error:
        if (found := translated(error)) is None:
            raise
        raise found from error


def failed(failure: Failure, cause: str) -> DatabaseUnavailableError:
    """Create the error of a cause, which the log names too."""
    return DatabaseUnavailableError(_MESSAGES[failure], failure=failure, cause=cause)


def _code(error: Any) -> str:
    return str(getattr(error, "sqlite_errorname", None) or getattr(error, "sqlstate", None) or "")


def _known(code: str) -> Failure | None:
    if not code.startswith("SQLITE_"):
        return _SQLSTATES.get(code)
    return next((failure for primary, failure in _SQLITE.items() if code.startswith(primary)), None)
