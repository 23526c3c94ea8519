"""Defines the exceptions of the store."""

from enum import StrEnum

from fleet.errors import FleetwrightError


class StoreError(FleetwrightError):
    """An operation of the store failed."""


class ConflictError(StoreError):
    """Another writer changed the object first."""


class KeyTakenError(ConflictError):
    """Another request saved the idempotency key between the check and the write."""


class KeyReusedError(StoreError):
    """An idempotency key was used before with another request."""


class NotEmptyError(StoreError):
    """A restore would replace rows."""


class UnknownRevisionError(StoreError):
    """No migration has this name."""


class Failure(StrEnum):
    """The cause of a failed transaction."""

    UNAVAILABLE = "unavailable"
    SCHEMA = "schema"  # it has not the tables of this program
    FULL = "full"
    READ_ONLY = "read-only"
    TIMEOUT = "timeout"
    LOCKED = "locked"  # by another transaction, for longer than the limit
    DEADLOCK = "deadlock"  # of two transactions; the other one goes on


class DatabaseUnavailableError(StoreError):
    """A transaction failed in the database and was rolled back.

    `cause` is the driver's exception and its code, for the log: the messages of drivers may contain values.
    """

    def __init__(self, message: str, *, failure: Failure = Failure.UNAVAILABLE, cause: str = "") -> None:
        super().__init__(message)
        self.failure = failure
        self.cause = cause
