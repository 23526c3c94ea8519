"""Contains the database behind repositories: SQLite by default, PostgreSQL by URL.

One `Store` per process.  Every change happens inside `store.transaction()`, which commits the change, its audit entry
and its idempotency record together.  Only this package imports SQLAlchemy.
"""

from api.store.audit import AuditFilter
from api.store.audit_chain import ChainCheck, ChainPlace, check_chain
from api.store.backup import BackupError, Contents, Difference, back_up, compare, read_backup, restore
from api.store.canonical import canonical_json, sha256_hex
from api.store.engine import database_file
from api.store.errors import (
    ConflictError,
    DatabaseUnavailableError,
    Failure,
    KeyReusedError,
    KeyTakenError,
    NotEmptyError,
    StoreError,
    UnknownRevisionError,
)
from api.store.inspection import CONNECTIONS_PER_PROCESS
from api.store.jobs import ChildJob, LaneCount, QueuedJob, WaitingJob
from api.store.migrate import Migrations
from api.store.records import (
    AuditRecord,
    ChangeRecord,
    CheckpointRecord,
    DiagnosisHead,
    DocumentRecord,
    JobRecord,
    LeaseRecord,
    LoopStatusRecord,
    NewAuditEntry,
    NewReply,
    QuarantineRecord,
    RateUsage,
    ResultFilter,
    ResultSummary,
    SavedReply,
    StatusRecord,
    StoredResult,
    TokenRecord,
    WorkerRecord,
)
from api.store.retention import Batch, Retention, Rule, rules
from api.store.store import Store, Transaction
from api.store.uuid7 import ID_PATTERN, new_id

__all__ = [
    "CONNECTIONS_PER_PROCESS",
    "ID_PATTERN",
    "AuditFilter",
    "AuditRecord",
    "BackupError",
    "Batch",
    "ChainCheck",
    "ChainPlace",
    "ChangeRecord",
    "CheckpointRecord",
    "ChildJob",
    "ConflictError",
    "Contents",
    "DatabaseUnavailableError",
    "DiagnosisHead",
    "Difference",
    "DocumentRecord",
    "Failure",
    "JobRecord",
    "KeyReusedError",
    "KeyTakenError",
    "LaneCount",
    "LeaseRecord",
    "LoopStatusRecord",
    "Migrations",
    "NewAuditEntry",
    "NewReply",
    "NotEmptyError",
    "QuarantineRecord",
    "QueuedJob",
    "RateUsage",
    "ResultFilter",
    "ResultSummary",
    "Retention",
    "Rule",
    "SavedReply",
    "StatusRecord",
    "Store",
    "StoreError",
    "StoredResult",
    "TokenRecord",
    "Transaction",
    "UnknownRevisionError",
    "WaitingJob",
    "WorkerRecord",
    "back_up",
    "canonical_json",
    "check_chain",
    "compare",
    "database_file",
    "new_id",
    "read_backup",
    "restore",
    "rules",
    "sha256_hex",
]
