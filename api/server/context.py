"""Holds the context of the current request, without an argument in every call."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import structlog

_request_id: ContextVar[str | None] = ContextVar("request_id", default=None)


def current_request_id() -> str | None:
    return _request_id.get()


@contextmanager
def request_context(request_id: str) -> Iterator[None]:
    """Run a request under an id, and restore the context afterwards: the caller may run in the same process."""
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
