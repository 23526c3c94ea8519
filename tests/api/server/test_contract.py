"""Every operation of the OpenAPI document, fuzzed by schemathesis against the running service: no 5xx, no violation.

The requests carry the admin token, so that nothing hides behind a 401; the seed is fixed, so that a failure repeats.
The short form sends a few requests per operation on SQLite; the long one adds the covering set of every parameter's
edge cases and sequences of operations, on both databases.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.testbed.server import ADMIN_TOKEN, StartServer
from tests.testbed.soak import SOAK

SEED = "20261121"
EXAMPLES = "20" if SOAK else "4"  # per operation
DATABASES = ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)] if SOAK else ["sqlite"]
PHASES = "examples,coverage,fuzzing,stateful" if SOAK else "examples,fuzzing"
UNLIMITED = {"rate_limit_per_s": "100000", "rate_limit_burst": "100000"}
NO_STREAMS = {"event_followers": "0"}  # one that follows has no end
SMALL_ROWS = {"simulation_server_days": "0.5", "fault_simulation_rank_hours": "4"}  # each is simulated
# A write with a valid body is refused without the right ETag (412, 428) or with an unknown name (422); a schema cannot
# express this.
NOT_APPLICABLE = "positive_data_acceptance"


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("database", DATABASES, indirect=True)
def test_the_service_keeps_its_contract(start_server: StartServer, database_url: str, tmp_path: Path) -> None:
    server = start_server(database_url, **UNLIMITED, **SMALL_ROWS, **NO_STREAMS)
    outcome = subprocess.run(
        [
            Path(sys.executable).with_name("schemathesis"),
            "run",
            f"{server.url}/openapi.json",
            *("--header", f"Authorization: Bearer {ADMIN_TOKEN}"),
            *("--checks", "all", "--exclude-checks", NOT_APPLICABLE),
            *("--phases", PHASES, "--max-examples", EXAMPLES, "--seed", SEED, "--generation-database", "none"),
            "--no-color",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stdout[-20_000:] + outcome.stderr[-2_000:] + server.process.log_tail()
