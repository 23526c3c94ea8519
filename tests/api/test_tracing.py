"""Traces: one from the caller over the service to the job, in a real receiver of OTLP; nothing where it is off."""

import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from api.client import Client
from api.tracing import current_traceparent, is_requested, span, tracing
from fleet.documents import parse_document, read_model
from planner.request import PlanRequest
from tests.api.cli.samples import REQUEST
from tests.testbed.otlp import Receiver, needs_exporter, receiving_traces
from tests.testbed.processes import LOOPBACK, Process, answers_ok, free_ports
from tests.testbed.server import ADMIN_TOKEN, ROOT, takes_token
from tests.testbed.waiting import wait_for


@pytest.mark.parametrize(
    ("environment", "requested"),
    [
        ({}, False),
        ({"OTEL_SERVICE_NAME": "x"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4318/v1/traces"}, True),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318", "OTEL_TRACES_EXPORTER": "none"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318", "OTEL_SDK_DISABLED": "true"}, False),
    ],
)
def test_the_standard_variables_turn_tracing_on_and_off(environment: dict[str, str], requested: bool) -> None:  # noqa: FBT001
    assert is_requested(environment) is requested


def test_tracing_that_is_off_imports_nothing_and_records_nothing() -> None:
    script = """
import sys
from api.tracing import current_traceparent, span, tracing
import api.client, api.jobs.worker
with tracing("x"), span("a") as made:
    made.set(b=1)
    assert current_traceparent() is None
assert not [name for name in sys.modules if name.startswith("opentelemetry")], "imported"
"""
    environment = {"PATH": os.environ["PATH"]}
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, env=environment, check=True)


@needs_exporter
def test_one_trace_leads_from_the_caller_to_the_phases_of_the_job(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = read_model(parse_document(REQUEST, name="request.yaml"), PlanRequest)
    with receiving_traces() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
        with _Service(sqlite_url, tmp_path) as client, tracing("caller"), span("order capacity"):
            caller = current_traceparent()
            plan = client.create_plan(request)
        assert caller is not None
        trace_id = caller.split("-")[1]
        wait_for(lambda: receiver.named("job plan"), what="the span of the job")
        wait_for(lambda: receiver.named("POST /v1/plans"), what="the span of the request")
        _assert_chain(receiver, trace_id, plan.id)


@needs_exporter
def test_a_traceparent_of_the_caller_is_continued_and_a_wrong_one_is_ignored(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with receiving_traces() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
        with _Service(sqlite_url, tmp_path) as client:
            url = str(client._connection.url)
            headers = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
            given = f"00-{'ab' * 16}-{'cd' * 8}-01"
            httpx.get(f"{url}/v1/gpus", headers=headers | {"traceparent": given})
            httpx.get(f"{url}/v1/models", headers=headers | {"traceparent": "00-0-0-zz"})
            httpx.get(f"{url}/livez")
            wait_for(lambda: receiver.named("GET /v1/models"), what="the span of the second request")
        (continued,) = receiver.named("GET /v1/gpus")
        (fresh,) = receiver.named("GET /v1/models")
    assert (continued.trace_id, continued.parent_id) == ("ab" * 16, "cd" * 8)
    assert fresh.parent_id == ""
    assert not receiver.named("GET /livez"), "probes are not traced"


class _Service:
    """Run `fleetwright serve` with its worker and the tracing of this environment."""

    def __init__(self, database_url: str, folder: Path) -> None:
        (port,) = free_ports(1)
        (folder / "token").write_text(ADMIN_TOKEN)
        environment = {
            "FLEETWRIGHT_DATABASE_URL": database_url,
            "FLEETWRIGHT_BOOTSTRAP_TOKEN_FILE": str(folder / "token"),
            "FLEETWRIGHT_LOG_LEVEL": "WARNING",
        }
        argv = [sys.executable, "-m", "api.cli", "serve", "--port", str(port), "--no-controller"]
        self._url = f"http://{LOOPBACK}:{port}"
        self._process = Process.start(argv, name="serve", log_dir=folder, env=os.environ | environment, cwd=ROOT)
        self._client = Client(self._url, token=ADMIN_TOKEN)

    def __enter__(self) -> Client:
        self._process.wait_ready(lambda: answers_ok(f"{self._url}/readyz") and takes_token(self._client))
        return self._client

    def __exit__(self, *_: object) -> None:
        self._client.close()
        self._process.stop()


def _assert_chain(receiver: Receiver, trace_id: str, plan_id: str) -> None:
    (root,) = receiver.named("order capacity", service="caller")
    (sent,) = receiver.named("POST", service="caller")
    (request,) = receiver.named("POST /v1/plans", service="fleetwright-api")
    (job,) = receiver.named("job plan", service="fleetwright-worker")
    assert {root.trace_id, sent.trace_id, request.trace_id, job.trace_id} == {trace_id}
    assert (sent.parent_id, request.parent_id, job.parent_id) == (root.span_id, sent.span_id, request.span_id)
    assert job.attributes["fleetwright.job.id"] == plan_id
    assert job.attributes["fleetwright.job.outcome"] == "succeeded"
    assert request.attributes["http.response.status_code"] == 201
    below = [each.name for each in receiver.spans if each.parent_id == job.span_id]
    assert below[0] == "read the inputs"
    assert {"start the process", "store the result"} <= set(below)
    assert request.kind == 2  # SPAN_KIND_SERVER
