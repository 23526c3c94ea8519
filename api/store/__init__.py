"""The database, behind repositories: SQLite by default, PostgreSQL by URL.

One `Store` per process; every change happens inside `store.transaction()`, which commits all of it, its audit entry and
its idempotency record together, or nothing.  Nothing outside this package sees SQLAlchemy.
"""

from api.store.canonical import canonical_json, sha256_hex
from api.store.errors import (
    ConflictError,
    DatabaseUnavailableError,
    KeyReusedError,
    KeyTakenError,
    StoreError,
    UnknownRevisionError,
)
from api.store.migrate import Migrations
from api.store.records import (
    AnswerHead,
    AuditRecord,
    DocumentVersion,
    IsolationRecord,
    LeaseRecord,
    NewReply,
    PlacementHead,
    SavedReply,
    StatusRecord,
    StoredAnswer,
    StoredPlacement,
    StoredPlan,
    TokenRecord,
    VerdictHead,
)
from api.store.results import AnswerRepository
from api.store.store import Store, Transaction

__all__ = [
    "AnswerHead",
    "AnswerRepository",
    "AuditRecord",
    "ConflictError",
    "DatabaseUnavailableError",
    "DocumentVersion",
    "IsolationRecord",
    "KeyReusedError",
    "KeyTakenError",
    "LeaseRecord",
    "Migrations",
    "NewReply",
    "PlacementHead",
    "SavedReply",
    "StatusRecord",
    "Store",
    "StoreError",
    "StoredAnswer",
    "StoredPlacement",
    "StoredPlan",
    "TokenRecord",
    "Transaction",
    "UnknownRevisionError",
    "VerdictHead",
    "canonical_json",
    "sha256_hex",
]
