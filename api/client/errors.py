"""Defines the exceptions of the client.

ApiError
├── ConnectionFailedError     no response: refused, reset, timed out; `sent`: the service may have acted
├── UnexpectedAnswerError     a response outside the contract: a redirect, another schema, no ETag
└── ProblemError              the service refused the request with an RFC 9457 problem
    ├── InvalidRequestError       400, 413, 415, 422: the request breaks the rules in `problem.errors`
    ├── UnauthorizedError         401: no token, or an unknown, expired or revoked one
    ├── ForbiddenError            403: the token lacks the scope
    ├── NotFoundError             404
    ├── GoneError                 410: the service has no longer what followed; read the state again
    ├── ConflictError             409: the state of the service forbids the request
    │   └── PreconditionFailedError   412, 428: another client wrote first; read again, then decide
    ├── RateLimitedError          429: retry after `retry_after_s`
    └── ServerError               5xx
ClientSettingsError           an unusable URL or token; nothing was sent
"""

from http import HTTPStatus

import httpx
from pydantic import ValidationError

from api.schemas.problems import ProblemDetails
from fleet.errors import FleetwrightError


class ClientSettingsError(FleetwrightError):
    """The settings of a client are wrong."""


class ApiError(FleetwrightError):
    """A call did not succeed."""

    problem: ProblemDetails | None = None


class ConnectionFailedError(ApiError):
    """No response.  When `sent` is true, the service may have acted nevertheless."""

    def __init__(self, message: str, *, sent: bool) -> None:
        self.sent = sent
        super().__init__(message)


class UnexpectedResponseError(ApiError):
    """The response does not match the contract."""


class ProblemError(ApiError):
    """The service refused the request and returned a problem."""

    problem: ProblemDetails

    def __init__(self, message: str, *, problem: ProblemDetails, retry_after_s: float | None = None) -> None:
        self.problem = problem
        self.retry_after_s = retry_after_s
        super().__init__(message)


class InvalidRequestError(ProblemError):
    """The request breaks a rule."""


class UnauthorizedError(ProblemError):
    """No valid token came with the request."""


class ForbiddenError(ProblemError):
    """The token does not allow this."""


class NotFoundError(ProblemError):
    """The object does not exist."""


class GoneError(ProblemError):
    """The service has no longer every event after the named one."""


class ConflictError(ProblemError):
    """The state of the service forbids the request."""


class PreconditionFailedError(ConflictError):
    """The document is not the version that the caller named."""


class RateLimitedError(ProblemError):
    """Too many requests."""


class ServerError(ProblemError):
    """The service failed, or is not ready."""


_BY_STATUS: dict[int, type[ProblemError]] = {
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    410: GoneError,
    412: PreconditionFailedError,
    428: PreconditionFailedError,
    429: RateLimitedError,
}


def error_from(response: httpx.Response, *, call: str) -> ApiError:
    """Create the error for an unsuccessful response.  `call` is its method and path: `GET /v1/plans`."""
    status = response.status_code
    if status < 400:
        return UnexpectedResponseError(f"{call}: unexpected status {status}")
    return error_of(_problem(response), call=call, retry_after_s=_retry_after_s(response))


def error_of(problem: ProblemDetails, *, call: str, retry_after_s: float | None = None) -> ProblemError:
    """Create the error for a problem, such as that of a job."""
    kind = _BY_STATUS.get(problem.status) or (ServerError if problem.status >= 500 else InvalidRequestError)
    return kind(_message(call, problem), problem=problem, retry_after_s=retry_after_s)


def _problem(response: httpx.Response) -> ProblemDetails:
    """Read the problem in the body; a minimal one when a proxy before the service responded."""
    try:
        return ProblemDetails.model_validate_json(response.content)
    except ValidationError:
        return ProblemDetails(type="about:blank", title=_phrase(response.status_code), status=response.status_code)


def _message(call: str, problem: ProblemDetails) -> str:
    message = f"{call}: {problem.status} {problem.title}"
    if problem.detail:
        message += f": {problem.detail}"
    if problem.errors:
        message += ": " + "; ".join(f"{error.path}: {error.message}" for error in problem.errors)
    return message


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown Status"


def _retry_after_s(response: httpx.Response) -> float | None:
    """Read `Retry-After` in seconds (RFC 9110 section 10.2.3); a date would need synchronized clocks."""
    text = response.headers.get("retry-after", "")
    return float(text) if text.isascii() and text.isdigit() else None
