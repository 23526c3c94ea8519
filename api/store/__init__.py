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
    AuditRecord,
    DocumentVersion,
    NewReply,
    PlacementHead,
    PowerHead,
    SavedReply,
    StatusRecord,
    StoredPlacement,
    StoredPlan,
    StoredPower,
    TokenRecord,
)
from api.store.store import Store, Transaction

__all__ = [
    "AuditRecord",
    "ConflictError",
    "DatabaseUnavailableError",
    "DocumentVersion",
    "KeyReusedError",
    "KeyTakenError",
    "Migrations",
    "NewReply",
    "PlacementHead",
    "PowerHead",
    "SavedReply",
    "StatusRecord",
    "Store",
    "StoreError",
    "StoredPlacement",
    "StoredPlan",
    "StoredPower",
    "TokenRecord",
    "Transaction",
    "UnknownRevisionError",
    "canonical_json",
    "sha256_hex",
]
