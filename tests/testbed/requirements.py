"""Skips the tests of a part that the machine lacks, or fails them where `FLEETWRIGHT_REQUIRE` names the part.

Continuous integration sets `FLEETWRIGHT_REQUIRE=kubernetes,ray,postgres,prometheus,lab`, so that a broken machine gives
failed tests there and not skipped ones.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Literal, NoReturn, get_args

import pytest

Part = Literal["kubernetes", "ray", "postgres", "prometheus", "lab"]

VARIABLE: Final = "FLEETWRIGHT_REQUIRE"
PARTS: Final[tuple[str, ...]] = get_args(Part)


class UnavailableError(Exception):
    """Carries the reason why this machine cannot run something that tests need."""


def required_parts(value: str) -> frozenset[str]:
    """Parse the comma-separated parts; an unknown one is an error, because a typing error would require nothing."""
    named = frozenset(name.strip() for name in value.split(",")) - {""}
    if unknown := sorted(named - set(PARTS)):
        raise ValueError(f"{VARIABLE} names {', '.join(unknown)}; known parts are {', '.join(PARTS)}")
    return named


def require_or_skip(part: Part, reason: str) -> NoReturn:
    """Skip the test that lacks `part`, or fail it where the part is required."""
    if part in required_parts(os.environ.get(VARIABLE, "")):
        pytest.fail(f"{part} is required by {VARIABLE}, but {reason}", pytrace=False)
    pytest.skip(f"{part}: {reason}")


@contextmanager
def skipping_where_unavailable(part: Part, *, what: str) -> Iterator[None]:
    """Convert an `UnavailableError` in the block to a skip or failure for lack of `part`."""
    try:
        yield
    except UnavailableError as unavailable:
        require_or_skip(part, f"{what}: {unavailable}")


def pytest_configure() -> None:
    """Refuse a wrong `FLEETWRIGHT_REQUIRE` before any test runs."""
    try:
        required_parts(os.environ.get(VARIABLE, ""))
    except ValueError as error:
        raise pytest.UsageError(str(error)) from None
