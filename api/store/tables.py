"""Defines the tables.  Migrations define the schema of a database; a test proves that the tables agree with them.

JSON is stored as canonical text: its hash is the ETag, and both databases return the exact bytes.
"""

from datetime import UTC, datetime

from sqlalchemy import (
    Boolean,
    DateTime,
    Dialect,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    String,
    Text,
    TypeDecorator,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from api.schemas.projects import DEFAULT_PROJECT

NAMING = {
    "ix": "ix_%(column_0_label)s",
    "uq": "uq_%(table_name)s_%(column_0_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}


class UtcDateTime(TypeDecorator[datetime]):
    """Stores a moment in UTC.  SQLite stores no zone, so reading adds it."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002 - SQLAlchemy's signature
        if value is not None and value.tzinfo is None:
            raise ValueError("a moment without a zone cannot be stored")
        return value.astimezone(UTC) if value is not None else None

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002 - SQLAlchemy's signature
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Base(DeclarativeBase):
    metadata = MetaData(naming_convention=NAMING)


class DocumentRow(Base):
    """Keeps every version of every document.  The primary key prevents lost updates."""

    __tablename__ = "documents"

    kind: Mapped[str] = mapped_column(String(32), primary_key=True)
    name: Mapped[str] = mapped_column(String(63), primary_key=True)
    version: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    body: Mapped[str | None] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    created_by: Mapped[str] = mapped_column(String(200))
    project: Mapped[str] = mapped_column(String(63), server_default=DEFAULT_PROJECT)
    requested_by: Mapped[str | None] = mapped_column(String(200))  # where another actor wrote for this one


class AuditRow(Base):
    """Keeps the audit chain.  Triggers refuse UPDATE and DELETE (see the first migration)."""

    __tablename__ = "audit"

    seq: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    at: Mapped[datetime] = mapped_column(UtcDateTime)
    actor: Mapped[str] = mapped_column(String(200))
    action: Mapped[str] = mapped_column(String(64))
    subject: Mapped[str] = mapped_column(String(200))
    detail: Mapped[str] = mapped_column(Text)
    request_id: Mapped[str | None] = mapped_column(String(64))
    hash: Mapped[str] = mapped_column(String(64))
    project: Mapped[str | None] = mapped_column(String(63))  # of the subject, for events; no part of the hash


class AuditHeadRow(Base):
    """Keeps the end of the chain in one row.  Its lock orders all writers, so that `seq` has no gap."""

    __tablename__ = "audit_head"

    id: Mapped[int] = mapped_column(SmallInteger, primary_key=True, autoincrement=False)
    seq: Mapped[int] = mapped_column(Integer)
    hash: Mapped[str] = mapped_column(String(64))


class TokenRow(Base):
    """Keeps only the hash of the secret."""

    __tablename__ = "tokens"

    id: Mapped[str] = mapped_column(String(12), primary_key=True)
    name: Mapped[str] = mapped_column(String(500))
    secret_sha256: Mapped[bytes] = mapped_column(LargeBinary(32))
    scopes: Mapped[str] = mapped_column(String(100))  # space separated, sorted
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    created_by: Mapped[str] = mapped_column(String(200))
    expires_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    revoked_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    project: Mapped[str | None] = mapped_column(String(63))  # None: every project
    parent: Mapped[str | None] = mapped_column(String(12))  # of a console session: the token that opened it


class ResultRow(Base):
    """Keeps results of every kind, immutable.  `summary` holds the columns of a list as JSON."""

    __tablename__ = "results"
    __table_args__ = (Index("ix_results_content_sha256", "content_sha256"),)

    kind: Mapped[str] = mapped_column(String(32), primary_key=True)
    id: Mapped[str] = mapped_column(String(36), primary_key=True)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    created_by: Mapped[str] = mapped_column(String(200))
    summary: Mapped[str] = mapped_column(Text)
    request: Mapped[str] = mapped_column(Text)
    result: Mapped[str] = mapped_column(Text)
    project: Mapped[str] = mapped_column(String(63), server_default=DEFAULT_PROJECT)
    name: Mapped[str | None] = mapped_column(String(200))
    content_sha256: Mapped[str | None] = mapped_column(String(64))  # of kind, request and catalogues
    inputs: Mapped[str | None] = mapped_column(Text)  # JSON: release, and version of each catalogue that was read


class ResultLabelRow(Base):
    __tablename__ = "result_labels"
    __table_args__ = (Index("ix_result_labels_key", "key", "value", "result_id"),)

    result_id: Mapped[str] = mapped_column(String(36), primary_key=True)
    key: Mapped[str] = mapped_column(String(63), primary_key=True)
    value: Mapped[str] = mapped_column(String(63))


class DiagnosisRow(Base):
    """Keeps diagnoses with their bundles.  Only the expiry changes."""

    __tablename__ = "diagnoses"
    __table_args__ = (Index("ix_diagnoses_expires_at", "expires_at"),)

    id: Mapped[str] = mapped_column(String(36), primary_key=True)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    created_by: Mapped[str] = mapped_column(String(200))
    job: Mapped[str] = mapped_column(String(500))
    fault: Mapped[str] = mapped_column(String(16))
    scope: Mapped[str] = mapped_column(String(16))
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime)
    report: Mapped[str] = mapped_column(Text)
    bundle_sha256: Mapped[str | None] = mapped_column(String(64))
    bundle: Mapped[bytes | None] = mapped_column(LargeBinary)
    project: Mapped[str] = mapped_column(String(63), server_default=DEFAULT_PROJECT)


class QuarantineRow(Base):
    """Keeps the state of the quarantine policy after the last evaluation in one row."""

    __tablename__ = "quarantine"

    id: Mapped[int] = mapped_column(SmallInteger, primary_key=True, autoincrement=False)
    evaluated_at: Mapped[datetime] = mapped_column(UtcDateTime)
    evaluated_by: Mapped[str] = mapped_column(String(200))
    body: Mapped[str] = mapped_column(Text)


class TargetStatusRow(Base):
    __tablename__ = "target_status"

    target: Mapped[str] = mapped_column(String(63), primary_key=True)
    reported_at: Mapped[datetime] = mapped_column(UtcDateTime)
    body: Mapped[str] = mapped_column(Text)
    reported_by: Mapped[str | None] = mapped_column(String(200))


class PlanningLoopStatusRow(Base):
    """Keeps the last report on each planning loop, and apart from it the state, which lists do not read."""

    __tablename__ = "planning_loop_status"

    planning_loop: Mapped[str] = mapped_column(String(63), primary_key=True)
    reported_at: Mapped[datetime] = mapped_column(UtcDateTime)
    reported_by: Mapped[str] = mapped_column(String(200))
    body: Mapped[str] = mapped_column(Text)
    state: Mapped[str | None] = mapped_column(Text)


class LeaseRow(Base):
    __tablename__ = "leases"

    name: Mapped[str] = mapped_column(String(63), primary_key=True)
    holder: Mapped[str | None] = mapped_column(String(500))
    term: Mapped[int] = mapped_column(Integer)
    beats: Mapped[int] = mapped_column(Integer)
    lease_s: Mapped[float] = mapped_column(Float)
    renewed_at: Mapped[datetime | None] = mapped_column(UtcDateTime)  # only for retention: the election needs no clock
    held_by: Mapped[str | None] = mapped_column(String(200))  # the actor that claimed it last
    held_term: Mapped[int | None] = mapped_column(Integer)  # the term of `held_by`, which 0.2.0 does not write


class ReplyRow(Base):
    __tablename__ = "replies"
    __table_args__ = (Index("ix_replies_expires_at", "expires_at"),)

    actor: Mapped[str] = mapped_column(String(200), primary_key=True)
    key: Mapped[str] = mapped_column(String(200), primary_key=True)
    fingerprint: Mapped[str] = mapped_column(String(64))
    status: Mapped[int] = mapped_column(SmallInteger)
    headers: Mapped[str] = mapped_column(Text)
    body: Mapped[str] = mapped_column(Text)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime)


class JobRow(Base):
    """Keeps work that processes of `fleetwright worker` do.  `request` is null once it is done."""

    __tablename__ = "jobs"
    __table_args__ = (
        Index("ix_jobs_state", "state", "lane", "project", "created_by", "parent", "id"),
        Index("ix_jobs_parent", "parent", "state"),
        Index("ix_jobs_finished_at", "finished_at"),
        Index("ix_jobs_project", "project", "created_at"),
        Index("uq_jobs_created_by", "created_by", "key", unique=True),
    )

    id: Mapped[str] = mapped_column(String(36), primary_key=True)
    kind: Mapped[str] = mapped_column(String(32))
    lane: Mapped[str] = mapped_column(String(16))
    state: Mapped[str] = mapped_column(String(16))
    project: Mapped[str] = mapped_column(String(63))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    created_by: Mapped[str] = mapped_column(String(200))
    request_id: Mapped[str | None] = mapped_column(String(64))
    key: Mapped[str | None] = mapped_column(String(200))
    fingerprint: Mapped[str | None] = mapped_column(String(64))
    parent: Mapped[str | None] = mapped_column(String(36))
    subject: Mapped[str | None] = mapped_column(String(200))
    deadline_s: Mapped[float] = mapped_column(Float)
    attempts: Mapped[int] = mapped_column(Integer)
    worker: Mapped[str | None] = mapped_column(String(63))
    started_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    finished_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    phase: Mapped[str | None] = mapped_column(String(100))
    share: Mapped[float | None] = mapped_column(Float)
    cancel_requested: Mapped[bool] = mapped_column(Boolean)
    cpu_s: Mapped[float | None] = mapped_column(Float)
    request: Mapped[str | None] = mapped_column(Text)
    output: Mapped[str | None] = mapped_column(Text)
    failure: Mapped[str | None] = mapped_column(Text)
    trace: Mapped[str | None] = mapped_column(String(55))  # the traceparent of its request
    naming: Mapped[str | None] = mapped_column(Text)  # JSON: name and labels of the result


class WorkerRow(Base):
    """Keeps the processes that do jobs.  One whose `beats` stand still is lost."""

    __tablename__ = "workers"

    id: Mapped[str] = mapped_column(String(63), primary_key=True)
    beats: Mapped[int] = mapped_column(Integer)
    started_at: Mapped[datetime] = mapped_column(UtcDateTime)
    version: Mapped[str] = mapped_column(String(63))


class AuditCheckpointRow(Base):
    """Keeps places of the audit chain up to which it was found intact."""

    __tablename__ = "audit_checkpoints"

    seq: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    hash: Mapped[str] = mapped_column(String(64))
    at: Mapped[datetime] = mapped_column(UtcDateTime)
    made_by: Mapped[str] = mapped_column(String(200))


class RateUsageRow(Base):
    """Keeps what each replica has served to a caller, so that all replicas share one rate limit."""

    __tablename__ = "rate_usage"

    caller: Mapped[str] = mapped_column(String(200), primary_key=True)
    replica: Mapped[str] = mapped_column(String(63), primary_key=True)
    spent: Mapped[float] = mapped_column(Float)
    at: Mapped[datetime] = mapped_column(UtcDateTime)


class WriteProbeRow(Base):
    """Keeps the last write of each replica that only checks whether the database takes writes."""

    __tablename__ = "write_probe"

    replica: Mapped[str] = mapped_column(String(63), primary_key=True)
    at: Mapped[datetime] = mapped_column(UtcDateTime)
