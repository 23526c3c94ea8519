"""Runs checks one after the other.  A check that cannot be completed is a failure with the reason."""

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from enum import StrEnum
from typing import TypeVar

from fleet.documents import Frozen
from fleet.errors import FleetwrightError

SubjectT = TypeVar("SubjectT")


class Outcome(StrEnum):
    OK = "ok"
    WARNING = "warning"
    FAILURE = "failure"
    SKIPPED = "skipped"


class Finding(Frozen):
    """The result of one check, without any secret."""

    check: str = ""
    outcome: Outcome
    detail: str
    repair: str | None = None


Check = Callable[[SubjectT], Awaitable[Finding]]


def ok(detail: str) -> Finding:
    return Finding(outcome=Outcome.OK, detail=detail)


def warning(detail: str, *, repair: str) -> Finding:
    return Finding(outcome=Outcome.WARNING, detail=detail, repair=repair)


def failure(detail: str, *, repair: str) -> Finding:
    return Finding(outcome=Outcome.FAILURE, detail=detail, repair=repair)


def skipped(reason: str) -> Finding:
    return Finding(outcome=Outcome.SKIPPED, detail=reason)


async def run_checks(
    checks: Mapping[str, Check[SubjectT]], subject: SubjectT, *, repair: str
) -> AsyncIterator[Finding]:
    """Run the checks in their order; `repair` is the hint for a check that could not be completed."""
    for name, check in checks.items():
        try:
            found = await check(subject)
        except (FleetwrightError, OSError, ssl.SSLError, TimeoutError) as error:
            found = failure(str(error) or type(error).__name__, repair=repair)
        yield found.model_copy(update={"check": name})
