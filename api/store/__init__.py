"""Contains the database behind repositories: SQLite by default, PostgreSQL by URL.

One `Store` per process.  Every change happens inside `store.transaction()`, which commits the change, its audit entry
and its idempotency record together.  Only this package imports SQLAlchemy.
"""

from api.store.canonical import canonical_json, sha256_hex
from api.store.errors import (
    ConflictError,
    DatabaseUnavailableError,
    Failure,
    KeyReusedError,
    KeyTakenError,
    StoreError,
    UnknownRevisionError,
)
from api.store.migrate import Migrations
from api.store.records import (
    AuditRecord,
    DiagnosisHead,
    DocumentRecord,
    LeaseRecord,
    NewReply,
    QuarantineRecord,
    ResultSummary,
    SavedReply,
    StatusRecord,
    StoredResult,
    TokenRecord,
)
from api.store.store import Store, Transaction

__all__ = [
    "AuditRecord",
    "ConflictError",
    "DatabaseUnavailableError",
    "DiagnosisHead",
    "DocumentRecord",
    "Failure",
    "KeyReusedError",
    "KeyTakenError",
    "LeaseRecord",
    "Migrations",
    "NewReply",
    "QuarantineRecord",
    "ResultSummary",
    "SavedReply",
    "StatusRecord",
    "Store",
    "StoreError",
    "StoredResult",
    "TokenRecord",
    "Transaction",
    "UnknownRevisionError",
    "canonical_json",
    "sha256_hex",
]
