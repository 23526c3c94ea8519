"""Defines the frozen values that repositories take and return."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from api.schemas.projects import DEFAULT_PROJECT


@dataclass(frozen=True, slots=True)
class DocumentRecord:
    """Is one version of a named document of a kind.  Without a body it is a tombstone: the document was deleted."""

    kind: str
    name: str
    version: int
    body: str | None  # canonical JSON
    created_at: datetime
    created_by: str
    project: str = DEFAULT_PROJECT
    requested_by: str | None = None  # where another actor wrote for this one


@dataclass(frozen=True, slots=True)
class AuditRecord:
    seq: int
    at: datetime
    actor: str
    action: str
    subject: str
    detail: Mapping[str, Any]
    request_id: str | None
    hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NewAuditEntry:
    """Is an entry before it has a number and a hash."""

    at: datetime
    actor: str
    action: str
    subject: str = ""
    detail: Mapping[str, Any] = field(default_factory=dict)
    request_id: str | None = None
    project: str | None = None  # that owns the subject; None: the fleet


@dataclass(frozen=True, slots=True)
class ChangeRecord:
    """Is what followers of changes may read of an audit entry."""

    seq: int
    at: datetime
    action: str
    subject: str
    project: str | None


@dataclass(frozen=True, slots=True)
class CheckpointRecord:
    """Is a place of the audit chain up to which a check found it intact."""

    seq: int
    hash: str
    at: datetime
    made_by: str


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """Describes a token without its secret."""

    id: str
    name: str
    secret_sha256: bytes
    scopes: frozenset[str]
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    revoked_at: datetime | None
    project: str | None = None  # None: every project
    parent: str | None = None  # of a console session: the token that opened it

    def is_valid(self, now: datetime) -> bool:
        """Check that the token is neither revoked nor expired."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """Describes a lease; without a holder it was released."""

    name: str
    holder: str | None
    term: int
    beats: int
    lease_s: float
    renewed_at: datetime | None = None
    held_by: str | None = None  # the actor that claimed it last
    held_term: int | None = None  # the term of `held_by`; a service of release 0.2.0 writes neither

    @property
    def actor(self) -> str | None:
        """Is the actor behind the holder; None where nobody holds the lease, or a service of 0.2.0 granted it."""
        return self.held_by if self.holder is not None and self.held_term == self.term else None


@dataclass(frozen=True, slots=True)
class RateUsage:
    """Is what one replica has granted to a caller since the caller's bucket there was full."""

    caller: str
    replica: str
    spent: float
    at: datetime


@dataclass(frozen=True, slots=True)
class ResultSummary:
    """Holds the columns of a list."""

    kind: str
    id: str
    created_at: datetime
    created_by: str
    summary: str  # canonical JSON
    project: str = DEFAULT_PROJECT
    name: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    content_sha256: str | None = None  # of kind, request and catalogues
    inputs: str | None = None  # JSON: release, and version of each catalogue that was read


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultFilter:
    """Selects results of a list.  A label without a value selects the results that have the label."""

    name_prefix: str | None = None
    labels: Mapping[str, str | None] = field(default_factory=dict)
    created_by: str | None = None
    created_after: datetime | None = None  # included
    created_before: datetime | None = None  # excluded
    status: str | None = None


@dataclass(frozen=True, slots=True)
class StoredResult:
    """Holds request and result as canonical JSON."""

    head: ResultSummary
    request: str
    result: str


@dataclass(frozen=True, slots=True)
class StatusRecord:
    """Holds the last report on a target."""

    target: str
    reported_at: datetime
    body: str
    reported_by: str | None = None


@dataclass(frozen=True, slots=True)
class LoopStatusRecord:
    """Holds the last report on a planning loop."""

    planning_loop: str
    reported_at: datetime
    reported_by: str
    body: str  # without the state


@dataclass(frozen=True, slots=True)
class NewReply:
    actor: str
    key: str
    fingerprint: str  # SHA-256 of method, path and body
    status: int
    headers: Mapping[str, str]
    body: str
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class SavedReply:
    status: int
    headers: Mapping[str, str]
    body: str


@dataclass(frozen=True, slots=True)
class DiagnosisHead:
    """Is a diagnosis as reported.  Only `expires_at` changes."""

    id: str
    created_at: datetime
    created_by: str
    job: str
    fault: str
    scope: str
    expires_at: datetime
    report: str  # canonical JSON, without the bundle
    bundle_sha256: str | None
    project: str = DEFAULT_PROJECT


@dataclass(frozen=True, slots=True)
class QuarantineRecord:
    evaluated_at: datetime
    evaluated_by: str
    body: str  # canonical JSON


@dataclass(frozen=True, slots=True)
class JobRecord:
    """Describes a job without its request and its output."""

    id: str
    kind: str
    lane: str
    state: str
    project: str
    created_at: datetime
    created_by: str
    request_id: str | None
    key: str | None
    fingerprint: str | None
    parent: str | None
    subject: str | None
    deadline_s: float
    attempts: int = 0
    worker: str | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    phase: str | None = None
    share: float | None = None
    cancel_requested: bool = False
    cpu_s: float | None = None
    failure: str | None = None  # JSON of a problem
    trace: str | None = None  # the traceparent of its request
    naming: str | None = None  # JSON: name and labels of the result

    @property
    def subject_id(self) -> str:
        """Return the id in the path of the subject, such as `plans/ID`."""
        return (self.subject or "").rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class WorkerRecord:
    id: str
    beats: int
    started_at: datetime
    version: str
