"""Computes and compares entity tags (RFC 9110 sections 8.8 and 13), for cheap reads and conditional writes."""

import re
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated

from fastapi import Header

from api.server.problems import ProblemError
from api.store import sha256_hex

IfMatch = Annotated[
    str | None,
    Header(max_length=2000, description='The ETag of the version to replace, such as `"3-0f1e2d3c4b5a6978"`.'),
]
IfNoneMatch = Annotated[str | None, Header(max_length=2000, description="Known ETags; 304 when one is current.")]

_TAG = re.compile(r'\s*(?:W/)?("[^"]*")\s*(?:,|$)')
_HASH_DIGITS = 16


def etag_of(*, version: int, body: str) -> str:
    return f'"{version}-{sha256_hex(body)[:_HASH_DIGITS]}"'


@dataclass(frozen=True, slots=True)
class Precondition:
    """Is the condition of a write on the current version."""

    tags: frozenset[str]
    must_exist: bool
    must_not_exist: bool

    def check(self, *, current: str | None) -> None:
        """Raise 412 unless the current tag (None: no document) satisfies the condition."""
        if self.must_not_exist:
            if current is not None:
                raise _failed("it exists already", current)
        elif current is None:
            raise _failed("it does not exist", current)
        elif not self.must_exist and current not in self.tags:
            raise _failed("it has changed since you read it", current)


def write_precondition(*, if_match: str | None, if_none_match: str | None = None) -> Precondition:
    """Parse the required precondition of a write: `If-Match`, or `If-None-Match: *` to create."""
    if if_match is None and (if_none_match or "").strip() == "*":
        return Precondition(tags=frozenset(), must_exist=False, must_not_exist=True)
    if if_match is None:
        raise ProblemError(
            status=HTTPStatus.PRECONDITION_REQUIRED,
            kind="precondition-required",
            detail="name the version to replace: If-Match with its ETag, or If-None-Match: * to create",
        )
    if if_match.strip() == "*":
        return Precondition(tags=frozenset(), must_exist=True, must_not_exist=False)
    # If-Match compares strongly: a weak tag never matches (RFC 9110 section 13.1.1).
    tags = frozenset() if "W/" in if_match else _tags(if_match)
    return Precondition(tags=tags, must_exist=False, must_not_exist=False)


def is_current(if_none_match: str | None, *, etag: str) -> bool:
    """Check whether the caller already has this version."""
    return if_none_match is not None and (if_none_match.strip() == "*" or etag in _tags(if_none_match))


def _tags(header: str) -> frozenset[str]:
    return frozenset(_TAG.findall(header))


def _failed(why: str, current: str | None) -> ProblemError:
    return ProblemError(
        status=HTTPStatus.PRECONDITION_FAILED,
        kind="precondition-failed",
        detail=f"{why}; nothing was changed",
        headers={"ETag": current} if current is not None else {},
    )
