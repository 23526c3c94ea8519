"""What belongs to the request being answered, without passing it through every call."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import structlog

_request_id: ContextVar[str | None] = ContextVar("request_id", default=None)


def current_request_id() -> str | None:
    """The id of the request being answered."""
    return _request_id.get()


@contextmanager
def request_context(request_id: str) -> Iterator[None]:
    """Answer a request under an id, leaving no trace: a caller inside this process goes on in the same context."""
    outside = structlog.contextvars.get_contextvars()
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(request_id=request_id)
    token = _request_id.set(request_id)
    try:
        yield
    finally:
        _request_id.reset(token)
        structlog.contextvars.clear_contextvars()
        structlog.contextvars.bind_contextvars(**outside)
