"""Fixtures of the controller's tests: the real service, a target that obeys on demand, retries that do not wait."""

from collections.abc import AsyncIterator, Iterator

import pytest
import stamina

from tests.deploy.controller.harness import Harness, harness_of
from tests.testbed.service import RunningService


@pytest.fixture(autouse=True)
def no_waiting() -> Iterator[None]:
    """As many attempts as the code asks for, without the pauses between them."""
    with stamina.set_testing(True, attempts=100, cap=True):
        yield


@pytest.fixture
async def harness(sqlite_service: RunningService) -> AsyncIterator[Harness]:
    """The service on SQLite, called by the client over ASGI; nothing registered yet."""
    async with harness_of(sqlite_service) as harness:
        yield harness
