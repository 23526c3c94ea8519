"""What the client raises.

ApiError
├── ConnectionFailedError     no answer: refused, reset, timed out; `sent` says whether the service may have acted
├── UnexpectedAnswerError     an answer outside the contract: a redirect, another schema, no ETag
└── ProblemError              the service said no, with its RFC 9457 problem
    ├── InvalidRequestError       400, 413, 415, 422: the request breaks a rule that `problem.errors` names
    ├── UnauthorizedError         401: no token, or one that is unknown, expired or revoked
    ├── ForbiddenError            403: the token lacks the scope
    ├── NotFoundError             404
    ├── ConflictError             409: the state of the service is against it
    │   └── PreconditionFailedError   412, 428: somebody else wrote first; read again, then decide
    ├── RateLimitedError          429: `retry_after_s` says when
    └── ServerError               5xx
ClientSettingsError           a URL or token that cannot be used; nothing was sent
"""

from http import HTTPStatus

import httpx
from pydantic import ValidationError

from api.schemas.problems import ProblemDetails
from fleet.errors import FleetwrightError


class ClientSettingsError(FleetwrightError):
    """The client cannot be built from what it was given."""


class ApiError(FleetwrightError):
    """A call did not succeed."""

    problem: ProblemDetails | None = None


class ConnectionFailedError(ApiError):
    """No answer came.  When `sent` is true the service may have acted all the same."""

    def __init__(self, message: str, *, sent: bool) -> None:
        self.sent = sent
        super().__init__(message)


class UnexpectedAnswerError(ApiError):
    """The answer does not follow the contract."""


class ProblemError(ApiError):
    """The service refused, and said why."""

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
    """There is no such thing."""


class ConflictError(ProblemError):
    """The state of the service is against the request."""


class PreconditionFailedError(ConflictError):
    """The document is not the version that the caller saw."""


class RateLimitedError(ProblemError):
    """Too many requests."""


class ServerError(ProblemError):
    """The service failed, or is not ready."""


_BY_STATUS: dict[int, type[ProblemError]] = {
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    412: PreconditionFailedError,
    428: PreconditionFailedError,
    429: RateLimitedError,
}


def error_from(response: httpx.Response, *, what: str) -> ApiError:
    """The error that an unwelcome answer stands for.  `what` names the call: `GET /v1/plans`."""
    status = response.status_code
    if status < 400:
        return UnexpectedAnswerError(f"{what}: answered {status}, which this call does not know")
    problem = _problem(response)
    kind = _BY_STATUS.get(status) or (ServerError if status >= 500 else InvalidRequestError)
    return kind(_message(what, problem), problem=problem, retry_after_s=_retry_after_s(response))


def _problem(response: httpx.Response) -> ProblemDetails:
    """The problem in the body; a bare one when something before the service (a proxy) answered."""
    try:
        return ProblemDetails.model_validate_json(response.content)
    except ValidationError:
        return ProblemDetails(type="about:blank", title=_phrase(response.status_code), status=response.status_code)


def _message(what: str, problem: ProblemDetails) -> str:
    message = f"{what}: {problem.status} {problem.title}"
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
    """`Retry-After` in seconds (RFC 9110 section 10.2.3); its other form, a date, would need a clock that agrees."""
    text = response.headers.get("retry-after", "")
    return float(text) if text.isascii() and text.isdigit() else None
