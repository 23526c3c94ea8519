"""Turns every error into an RFC 9457 problem, with one exception class and one handler."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from api.schemas.problems import PROBLEM_MEDIA_TYPE, PROBLEM_TYPE_PREFIX, FieldProblem, ProblemDetails
from api.server.context import current_request_id
from api.server.openapi import allowed_methods
from api.store import ConflictError, DatabaseUnavailableError, KeyReusedError
from fleet.documents import MAX_PROBLEMS, dotted, item_problems
from fleet.errors import DocumentError, FleetwrightError, UnknownNameError

RETRY_AFTER_S = "1"
PROBLEM_KIND = "problem_kind"  # in the state of a request, for its metrics

log = structlog.get_logger("fleetwright.request")


class ProblemError(FleetwrightError):
    """Becomes the problem of an unsuccessful response."""

    def __init__(
        self,
        *,
        status: HTTPStatus,
        kind: str,
        detail: str,
        errors: Sequence[FieldProblem] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.kind = kind
        self.detail = detail
        self.errors = tuple(errors)
        self.headers = dict(headers or {})


def not_found(subject: str) -> ProblemError:
    """Create a 404."""
    return ProblemError(status=HTTPStatus.NOT_FOUND, kind="not-found", detail=f"there is no {subject}")


def conflict(detail: str) -> ProblemError:
    """Create a 409."""
    return ProblemError(status=HTTPStatus.CONFLICT, kind="conflict", detail=detail)


def invalid(path: str, message: str) -> ProblemError:
    """Create a 422 for one field."""
    return ProblemError(
        status=HTTPStatus.UNPROCESSABLE_ENTITY,
        kind="invalid-request",
        detail=f"{path}: {message}",
        errors=[FieldProblem(path=path, message=message)],
    )


def service_unavailable(kind: str, detail: str) -> ProblemError:
    """Create a 503."""
    return ProblemError(
        status=HTTPStatus.SERVICE_UNAVAILABLE, kind=kind, detail=detail, headers={"Retry-After": RETRY_AFTER_S}
    )


def unprocessable(errors: Sequence[FieldProblem]) -> ProblemError:
    """Create a 422 for one or more fields."""
    return _unprocessable(errors, count=len(errors))


def problem_response(problem: ProblemError, *, instance: str | None) -> Response:
    details = ProblemDetails(
        type=PROBLEM_TYPE_PREFIX + problem.kind,
        title=problem.status.phrase,
        status=problem.status,
        detail=problem.detail,
        instance=instance,
        errors=problem.errors,
        request_id=current_request_id(),
    )
    return Response(
        content=details.model_dump_json(exclude_none=True),
        status_code=problem.status,
        media_type=PROBLEM_MEDIA_TYPE,
        headers=problem.headers,
    )


def add_problem_handlers(app: FastAPI) -> None:
    """Turn every error of the application into a problem."""

    async def handle(request: Request, error: Exception) -> Response:
        problem = to_problem(error)
        setattr(request.state, PROBLEM_KIND, problem.kind)
        if isinstance(error, DatabaseUnavailableError):
            report_database_failure(request, error)
        if problem.status is HTTPStatus.METHOD_NOT_ALLOWED:
            problem.headers["Allow"] = allowed_methods(app, request.url.path)
        return problem_response(problem, instance=request.url.path)

    for kind in (FleetwrightError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, handle)


def report_database_failure(request: Request, error: DatabaseUnavailableError) -> None:
    """Log the cause under the request's id, and count it."""
    log.warning("database_failed", failure=error.failure.value, cause=error.cause)
    request.app.state.service.metrics.observe_database_failure(error.failure)


def to_problem(error: Exception) -> ProblemError:  # noqa: PLR0911 - one return for each kind of error
    """Convert an exception.  An unknown exception is a defect; the problem contains no detail of it."""
    match error:
        case ProblemError():
            return error
        case RequestValidationError():
            return _from_validation(error)
        case DocumentError():
            found = [FieldProblem(path=p.path, message=p.message, line=p.line) for p in error.problems]
            return _unprocessable(found, count=len(found))
        case UnknownNameError():
            return invalid(error.kind, str(error))
        case KeyReusedError():
            return invalid("header.Idempotency-Key", "was used for another request; allowed: a new key per request")
        case ConflictError():
            return conflict(f"{error}; nothing was changed, try again")
        case DatabaseUnavailableError():
            return ProblemError(
                status=HTTPStatus.SERVICE_UNAVAILABLE,
                kind=f"database-{error.failure}",
                detail=str(error),
                headers={"Retry-After": RETRY_AFTER_S},
            )
        case HTTPException(status_code=HTTPStatus.BAD_REQUEST):  # FastAPI's error for a body that its parser rejects
            return ProblemError(
                status=HTTPStatus.BAD_REQUEST,
                kind="bad-request",
                detail="body: cannot be read; allowed: JSON in UTF-8, nested some hundred levels deep at most",
            )
        case HTTPException():
            status = HTTPStatus(error.status_code)
            kind = status.phrase.lower().replace(" ", "-")
            return ProblemError(status=status, kind=kind, detail=str(error.detail), headers=error.headers)
        case FleetwrightError():
            return ProblemError(status=HTTPStatus.UNPROCESSABLE_ENTITY, kind="refused", detail=str(error))
        case _:
            return ProblemError(
                status=HTTPStatus.INTERNAL_SERVER_ERROR,
                kind="internal",
                detail="a defect of the service; its log has the details under this request id",
            )


def _unprocessable(errors: Sequence[FieldProblem], *, count: int) -> ProblemError:
    """Report at most MAX_PROBLEMS of `count` errors."""
    shown = errors[:MAX_PROBLEMS]
    detail = f"{shown[0].path}: {shown[0].message}" if count == 1 else f"{count:,} fields are not acceptable"
    if count > len(shown):
        detail += f": the first {len(shown)}, and {count - len(shown):,} more"
    return ProblemError(status=HTTPStatus.UNPROCESSABLE_ENTITY, kind="invalid-request", detail=detail, errors=shown)


def _from_validation(error: RequestValidationError) -> ProblemError:
    items = error.errors()
    # A few more than are shown: one rule of ours may give several problems, and some items give none.
    first = items[: 2 * MAX_PROBLEMS]
    unread = [problem for item in first if (problem := _unread(item)) is not None]
    read = [item for item in first if _unread(item) is None]
    found = unread + [FieldProblem(path=_place(path), message=message) for path, message in item_problems(read)]
    # A list without its wrong items is reported as too short, behind all of them.
    more = sum(item["type"] != "too_short" for item in items[len(first) :])
    return _unprocessable(found, count=len(found) + more)


def _unread(item: Any) -> FieldProblem | None:
    """Describe a body that is not JSON."""
    if item["type"] == "json_invalid":
        _body, at = item["loc"]
        return FieldProblem(path="body", message=f"must be JSON; at character {at + 1}: {item['ctx']['error']}")
    if isinstance(item.get("input"), bytes):
        return FieldProblem(path="header.Content-Type", message="must be application/json")
    return None


def _place(path: tuple[str | int, ...]) -> str:
    """Paths start at the root of the body, as in a file; the root itself is `body`."""
    return dotted(path[1:] if path[:1] == ("body",) and path[1:] else path)
