"""Reads a body up to the limit of its route, and up to the memory that all bodies may hold together."""

import email.message
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from fastapi import Request
from fastapi.dependencies.models import Dependant

from api.jobs.body import unique
from api.server.problems import ProblemError
from api.server.settings import Settings

TOTAL_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyRule:
    """How a route takes its body."""

    model: Any
    is_large: bool  # a result or a diagnosis is made from it

    @classmethod
    def of(cls, dependant: Dependant, *, is_large: bool) -> "BodyRule | None":
        """Return the rule of an operation; None where it has no body."""
        if not dependant.body_params:
            return None
        (body,) = dependant.body_params
        return cls(model=body.field_info.annotation, is_large=is_large)

    def limit_bytes(self, settings: Settings) -> int:
        most = settings.body_limit_bytes
        return most if self.is_large else min(most, settings.document_body_limit_bytes)


class BodyBudget:
    """Bounds the memory of all bodies that are held at the same time."""

    def __init__(self, total_bytes: int = TOTAL_BYTES) -> None:
        self._free_bytes = total_bytes

    @contextmanager
    def share(self) -> Iterator["BodyShare"]:
        """Hold a share for the time of one request."""
        share = BodyShare(self)
        try:
            yield share
        finally:
            share.release()

    def give_back(self, size_bytes: int) -> None:
        self._free_bytes += size_bytes

    def take(self, size_bytes: int) -> bool:
        if size_bytes > self._free_bytes:
            return False
        self._free_bytes -= size_bytes
        return True


class BodyShare:
    """The part of the budget that one request holds."""

    def __init__(self, budget: BodyBudget) -> None:
        self._budget = budget
        self.held_bytes = 0

    def grow(self, size_bytes: int) -> None:
        """Take more; 503 where other requests hold too much."""
        if not self._budget.take(size_bytes):
            raise ProblemError(
                status=HTTPStatus.SERVICE_UNAVAILABLE,
                kind="bodies-busy",
                detail="other requests hold the memory that this service has for bodies; try again",
                headers={"Retry-After": "1", "Connection": "close"},
            )
        self.held_bytes += size_bytes

    def release(self) -> None:
        """Give everything back, once the body is stored or the request is done."""
        self._budget.give_back(self.held_bytes)
        self.held_bytes = 0


async def read_body(request: Request, share: BodyShare, *, limit_bytes: int) -> bytes:
    """Read a body; 413 as soon as the announced or the received length is over the limit."""
    announced = request.headers.get("content-length", "0")
    if announced.isdigit() and int(announced[:20]) > limit_bytes:
        raise _too_large(limit_bytes)
    chunks: list[bytes] = []
    async for chunk in request.stream():
        share.grow(len(chunk))
        if share.held_bytes > limit_bytes:
            raise _too_large(limit_bytes)
        chunks.append(chunk)
    return b"".join(chunks)


def is_json(content_type: str | None) -> bool:
    """Check whether FastAPI would parse a body of this type."""
    message = email.message.Message()
    message["content-type"] = content_type or ""
    subtype = message.get_content_subtype()
    return message.get_content_maintype() == "application" and (subtype == "json" or subtype.endswith("+json"))


def parse_document(body: bytes) -> Any:
    """Parse JSON without keys that are given twice."""
    return json.loads(body, object_pairs_hook=unique)


def _too_large(limit_bytes: int) -> ProblemError:
    status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    return ProblemError(
        status=status,
        kind=status.phrase.lower().replace(" ", "-"),
        detail=f"body: is too large; allowed: {limit_bytes} bytes",
        headers={"Connection": "close"},
    )
