"""A reconcile is one trace: from the target over the actuator's calls to the requests that the service answers."""

import pytest

from api.tracing import tracing
from tests.deploy.controller.harness import Harness, app
from tests.testbed.otlp import needs_exporter, receiving_traces

pytestmark = [pytest.mark.anyio, needs_exporter]


async def test_a_reconcile_and_its_actuator_calls_are_one_trace(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve = app(B200=1, L4=4)
    await harness.register("chat", serve, plan_id=await harness.plan({"B200": 3}))
    controller = harness.controller()
    with receiving_traces() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
        with tracing("fleetwright-controller"):
            await harness.round(controller)
    (reconcile,) = receiver.named("reconcile")
    (target,) = receiver.named("reconcile target")
    (observed,) = receiver.named("observe")
    (applied,) = receiver.named("apply")
    reports = receiver.named("PUT /v1/targets/{name}/status")
    assert reports
    assert target.parent_id == reconcile.span_id
    assert {observed.parent_id, applied.parent_id} == {target.span_id}
    assert {each.trace_id for each in (target, observed, applied, *reports)} == {reconcile.trace_id}
    assert target.attributes["fleetwright.target"] == "chat"
    assert applied.attributes["fleetwright.replicas"] == serve.writes[0][1] == 3
