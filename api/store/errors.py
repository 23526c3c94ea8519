"""What the database can say no to."""

from fleet.errors import FleetwrightError


class StoreError(FleetwrightError):
    """The store could not do what was asked."""


class ConflictError(StoreError):
    """Somebody else changed it first."""


class KeyTakenError(ConflictError):
    """An idempotency key was saved by somebody else between our look and our write."""


class KeyReusedError(StoreError):
    """An idempotency key came back with another request."""


class UnknownRevisionError(StoreError):
    """There is no migration of this name."""


class DatabaseUnavailableError(StoreError):
    """The database does not answer, or its schema is not the one this program knows."""
