"""What a machine must offer for the tests: a part it lacks skips its tests, unless `FLEETWRIGHT_REQUIRE` names it.

`FLEETWRIGHT_REQUIRE=kubernetes,ray,postgres,prometheus,lab` is what continuous integration sets, so that a broken
machine shows as failed tests there and not as skipped ones.
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
    """This machine cannot have something that tests need; the message says why."""


def required_parts(value: str) -> frozenset[str]:
    """Read the comma-separated parts of `value`; an unknown one is an error, or a typing slip would require nothing."""
    named = frozenset(name.strip() for name in value.split(",")) - {""}
    if unknown := sorted(named - set(PARTS)):
        raise ValueError(f"{VARIABLE} names {', '.join(unknown)}; known parts are {', '.join(PARTS)}")
    return named


def require_or_skip(part: Part, reason: str) -> NoReturn:
    """End the test that lacks `part`: skipped with `reason`, or failed with it where the part is required."""
    if part in required_parts(os.environ.get(VARIABLE, "")):
        pytest.fail(f"{part} is required by {VARIABLE}, but {reason}", pytrace=False)
    pytest.skip(f"{part}: {reason}")


@contextmanager
def skipping_where_unavailable(part: Part, *, what: str) -> Iterator[None]:
    """Let an `UnavailableError` from inside end the test as one that lacks `part`, because of `what`."""
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
