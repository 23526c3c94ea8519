"""Fixtures of the telemetry tests."""

import pytest

from faults.readers import ParseErrors
from tests.deploy.telemetry.loopback import free_port


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def tally() -> ParseErrors:
    return ParseErrors()
