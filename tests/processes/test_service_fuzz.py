"""Random and malformed requests: no 5xx, no restart.  The long form sends 100,000."""

import pytest

from bench.service_fuzz import fuzz
from tests.testbed.server import ADMIN_TOKEN, StartServer
from tests.testbed.soak import SOAK

REQUESTS = 100_000 if SOAK else 2_000


@pytest.mark.timeout(3600)
def test_no_request_makes_the_service_fail(start_server: StartServer, sqlite_url: str) -> None:
    server = start_server(sqlite_url, rate_limit_per_s="100000", rate_limit_burst="100000")
    outcome = fuzz(server.url, token=ADMIN_TOKEN, count=REQUESTS, seed=20261127)
    assert outcome.failures == [], "\n".join(outcome.failures[:10]) + server.process.log_tail()
    assert server.process.running(), server.process.log_tail()
    assert {200, 400, 404, 422} <= outcome.statuses.keys()
