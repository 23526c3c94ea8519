"""Defines the exceptions of the store."""

from fleet.errors import FleetwrightError


class StoreError(FleetwrightError):
    """An operation of the store failed."""


class ConflictError(StoreError):
    """Another writer changed the object first."""


class KeyTakenError(ConflictError):
    """Another request saved the idempotency key between the check and the write."""


class KeyReusedError(StoreError):
    """An idempotency key was used before with another request."""


class UnknownRevisionError(StoreError):
    """No migration has this name."""


class DatabaseUnavailableError(StoreError):
    """The database does not respond, or has a schema that this program does not support."""
