"""The objectives of latency leave out the requests that wait for a job, and no other."""

import re
from collections.abc import Iterator

import pytest
import yaml

from tests.helm.chart import ALERTS
from tests.testbed.service import RunningService

pytestmark = pytest.mark.anyio

READS = {"GET"}
# Without a job, but slow on purpose: streams, a check of the audit; and one below /v1/plans.
OTHERS = {"/v1/events", "/v1/jobs/{id}/events", "/v1/audit/checkpoints", "/v1/plans/validate"}


def left_out(objective: str) -> re.Pattern[str]:
    """Return the routes that the rules of an objective leave out, the same in each of its windows."""
    rules = [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
    expressions = [rule["expr"] for rule in rules if rule.get("labels", {}).get("slo") == objective]
    (pattern,) = {found for each in expressions for found in re.findall(r'route!~"([^"]+)"', each)}
    return re.compile(pattern)


def operations(service: RunningService) -> Iterator[tuple[str, str, bool]]:
    """Yield method, route, and whether the caller may wait for a job."""
    for path, methods in service.app.openapi()["paths"].items():
        for method, operation in methods.items():
            names = {parameter["name"].lower() for parameter in operation.get("parameters", [])}
            yield method.upper(), path, "prefer" in names


async def test_requests_that_wait_for_a_job_are_in_no_objective_of_latency(sqlite_service: RunningService) -> None:
    reads, writes = left_out("read-latency"), left_out("write-latency")
    waiting = [(method, path) for method, path, waits in operations(sqlite_service) if waits]
    assert len(waiting) > 8
    counted = [(method, path) for method, path in waiting if not (reads if method in READS else writes).fullmatch(path)]
    assert counted == []


async def test_other_requests_are_in_an_objective(sqlite_service: RunningService) -> None:
    reads, writes = left_out("read-latency"), left_out("write-latency")
    missing = {
        path
        for method, path, waits in operations(sqlite_service)
        if path.startswith("/v1/") and not waits and (reads if method in READS else writes).fullmatch(path)
    }
    assert missing <= OTHERS
