"""What tests of probes begin with."""

import pytest

from faults.readers import Tally
from tests.deploy.telemetry.loopback import free_port


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def tally() -> Tally:
    return Tally()
