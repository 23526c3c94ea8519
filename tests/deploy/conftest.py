"""Fixtures of the controller's tests: a harness with the real service, and retries without waits."""

from collections.abc import AsyncIterator, Iterator

import pytest
import stamina

from tests.deploy.controller.harness import Harness, harness_of
from tests.testbed.service import RunningService


@pytest.fixture(autouse=True)
def no_waiting() -> Iterator[None]:
    """Retry as often as the code requests, without waits between the attempts."""
    with stamina.set_testing(True, attempts=100, cap=True):
        yield


@pytest.fixture
async def harness(sqlite_service: RunningService) -> AsyncIterator[Harness]:
    """A harness with the service on SQLite, called over ASGI, without registered targets."""
    async with harness_of(sqlite_service) as harness:
        yield harness
