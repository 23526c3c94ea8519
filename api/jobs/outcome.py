"""What passes between a worker and the process that does a job; all of it can be pickled."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from http import HTTPStatus
from typing import Any, Final

from pydantic import ValidationError

from api.schemas.problems import FieldProblem
from fleet.documents import MAX_PROBLEMS, RuleError, Violation, dotted, validation_problems
from fleet.errors import DocumentError, FleetwrightError, Problem, UnknownNameError

CANCELLED: Final = "job-cancelled"
OUT_OF_MEMORY: Final = "job-out-of-memory"
Report = Callable[[str, float | None], None]  # phase, finished share


@dataclass(frozen=True, slots=True)
class JobLimits:
    """Limits of this installation that a job checks before the work."""

    simulation_server_days: float = 1_000.0
    fault_simulation_rank_hours: float = 2_048.0
    fault_simulation_ranks: int = 16_384
    replayed_requests: int = 2_000_000
    sweep_points: int = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A job with everything that its process needs.  The process itself reads no database."""

    id: str
    kind: str
    request: str  # the body as sent
    inputs: Mapping[str, Any] = field(default_factory=dict)
    limits: JobLimits = field(default_factory=JobLimits)
    now: datetime


@dataclass(frozen=True, slots=True)
class Solved:
    """What a job has made."""

    output: str  # JSON or text, as the caller gets it
    request: str | None = None  # canonical, where it is stored with the output
    columns: Mapping[str, Any] = field(default_factory=dict)  # of a list, and of the audit
    observed: Mapping[str, Any] = field(default_factory=dict)  # for metrics
    blob: bytes | None = None
    content_sha256: str | None = None  # of kind, request and inputs; set by the worker
    reusable: bool = True  # for the same request
    inputs: str | None = None  # JSON: release, and version of each catalogue that was read; set by the worker


@dataclass(frozen=True, slots=True, kw_only=True)
class Expanded:
    """Divides a job into others, for whose ends it waits."""

    kind: str  # of the others
    requests: Sequence[str]
    kept: str  # by the job, for the others and for its second run


@dataclass(frozen=True, slots=True)
class JobFailure:
    """Why a job has no result: the problem of the response to its request."""

    status: int
    kind: str
    detail: str
    errors: Sequence[Mapping[str, Any]] = ()

    def to_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> "JobFailure":
        found = json.loads(text)
        return cls(**{name: found[name] for name in ("status", "kind", "detail", "errors")})

    def field_problems(self) -> list[FieldProblem]:
        return [FieldProblem.model_validate(error) for error in self.errors]


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of a job's process."""

    outcome: Solved | Expanded | JobFailure
    cpu_s: float = 0.0
    defect: str | None = None  # the traceback of an unexpected error, for the log


def failure_of(error: Exception) -> JobFailure | None:
    """Return the failure that an error of the request means; None for a defect of the program."""
    match error:
        case ValidationError():
            return invalid_request(validation_problems(error))
        case RuleError():
            return invalid_request(error.violations)
        case DocumentError():
            return _unprocessable(error.problems, count=len(error.problems))
        case UnknownNameError():
            return _unprocessable([Problem(error.kind, str(error))], count=1)
        case FleetwrightError():
            return JobFailure(HTTPStatus.UNPROCESSABLE_ENTITY, "refused", str(error))
        case _:
            return None


def invalid_request(violations: Sequence[Violation]) -> JobFailure:
    shown = [Problem(dotted(path) or "body", message) for path, message in violations[:MAX_PROBLEMS]]
    return _unprocessable(shown, count=len(violations))


def refuse(path: str, message: str) -> DocumentError:
    """Create the error of one field of a request."""
    return DocumentError(name="request", problems=[Problem(path, message)])


def _unprocessable(problems: Sequence[Problem], *, count: int) -> JobFailure:
    first = problems[0]
    detail = f"{first.path}: {first.message}" if count == 1 else f"{count} fields are not acceptable"
    errors = [{"path": each.path, "message": each.message, "line": each.line} for each in problems]
    return JobFailure(HTTPStatus.UNPROCESSABLE_ENTITY, "invalid-request", detail, errors)


def lost(attempts: int) -> JobFailure:
    return JobFailure(
        HTTPStatus.SERVICE_UNAVAILABLE, "job-lost", f"its worker was lost {attempts} times while it ran; send it again"
    )


def out_of_memory(limit_mib: int) -> JobFailure:
    detail = f"the job needs more than {limit_mib:,} MiB of memory, the limit here"
    return JobFailure(HTTPStatus.UNPROCESSABLE_ENTITY, OUT_OF_MEMORY, detail)


def past_deadline(deadline_s: float) -> JobFailure:
    detail = f"the job ran longer than {deadline_s:g} s, its deadline"
    return JobFailure(HTTPStatus.UNPROCESSABLE_ENTITY, "job-past-deadline", detail)


def died(reason: str) -> JobFailure:
    return JobFailure(HTTPStatus.INTERNAL_SERVER_ERROR, "job-died", f"the process of the job ended: {reason}")


def without_node(reason: str) -> JobFailure:
    return JobFailure(
        HTTPStatus.SERVICE_UNAVAILABLE, "job-without-node", f"no node of the Ray cluster can run the job: {reason}"
    )


def cancelled() -> JobFailure:
    return JobFailure(HTTPStatus.CONFLICT, CANCELLED, "the job was cancelled")


def defect() -> JobFailure:
    detail = "a defect of the service; the log of its worker has the details under this job's id"
    return JobFailure(HTTPStatus.INTERNAL_SERVER_ERROR, "internal", detail)
