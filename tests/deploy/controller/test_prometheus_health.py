"""Reading a health probe: a value that is not a fresh finite number is missing, with the reason."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from pydantic import ValidationError

from api.schemas.probes import HealthProbe
from api.schemas.target_state import Readings
from deploy.controller import prometheus_health
from deploy.controller.health_check import Health, HealthOutcome, check_health
from deploy.controller.prometheus_health import MAX, MAX_RESPONSE_BYTES, PrometheusHealth, unread_health

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
PROBE = HealthProbe.model_validate(
    {
        "prometheus_url": "http://prometheus:9090/base/",
        "error_rate_query": "errors",
        "max_error_rate": 0.05,
        "latency_query": "latency",
        "max_latency_s": 2.0,
    }
)
ERRORS = PROBE.model_copy(update={"latency_query": None, "max_latency_s": None})


def vector(*values: str, age_s: float = 0.0) -> dict[str, Any]:
    series = [{"metric": {"pod": str(n)}, "value": [NOW.timestamp() - age_s, text]} for n, text in enumerate(values)]
    return {"status": "success", "data": {"resultType": "vector", "result": series}}


async def read(answer: httpx.Response, probe: HealthProbe = ERRORS) -> Health:
    async with httpx.AsyncClient(transport=httpx.MockTransport(lambda _request: answer)) as http:
        return await PrometheusHealth(http, lambda: NOW)(probe)


@pytest.mark.anyio
async def test_each_value_is_requested_by_its_query() -> None:
    requests = []

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append((request.method, request.url.path, request.content))
        return httpx.Response(200, json=vector("0.5" if b"errors" in request.content else "1.5"))

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as http:
        found = await PrometheusHealth(http, lambda: NOW)(PROBE)
    assert found == Health(readings=Readings(error_rate=0.5, latency_s=1.5), missing={})
    path = "/base/api/v1/query"
    assert requests == [("POST", path, b"query=errors"), ("POST", path, b"query=latency")]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("body", "value"),
    [
        (vector("0.25"), 0.25),
        (vector("0.1", "0.4", "0.2"), 0.4),
        (vector("+Inf"), MAX),
        ({"status": "success", "data": {"resultType": "scalar", "result": [NOW.timestamp(), "0.5"]}}, 0.5),
    ],
)
async def test_the_highest_value_of_all_series_is_read(body: Any, value: float) -> None:
    assert (await read(httpx.Response(200, json=body))).readings.error_rate == value


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (httpx.Response(200, json=vector()), "the query gives no value"),
        (httpx.Response(200, json=vector("NaN")), "the query gives NaN"),
        (httpx.Response(200, json=vector("0.1", "NaN")), "the query gives 0.1, NaN"),
        (httpx.Response(200, json=vector("-1")), "the query gives -1"),
        (httpx.Response(200, json=vector("soon")), "the query gives soon"),
        (httpx.Response(200, json=vector("0.1", age_s=121.0)), "the value is 121 s old; allowed: at most 120 s"),
        (httpx.Response(400, json={"error": "parse error"}), "returned 400"),
        (httpx.Response(502, text="<html>"), "returned 502"),
        (httpx.Response(302, headers={"Location": "http://elsewhere/"}), "returned 302"),
        (httpx.Response(200, text="<html>"), "the response is not Prometheus's"),
        (httpx.Response(200, json={"status": "success", "data": {"resultType": "matrix", "result": []}}), "is not"),
        (httpx.Response(200, content=b" " * (MAX_RESPONSE_BYTES + 1)), "returns more than 1000000 bytes"),
    ],
)
async def test_a_value_that_is_no_fresh_finite_number_is_missing(answer: httpx.Response, reason: str) -> None:
    found = await read(answer)
    assert found.readings == Readings()
    assert reason in found.missing["error rate"]


@pytest.mark.anyio
async def test_an_unresponsive_server_gives_a_missing_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus_health, "TIMEOUT_S", 0.05)

    async def never(_request: httpx.Request) -> httpx.Response:
        await asyncio.Event().wait()
        raise AssertionError

    async def gone(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    for transport, reason in ((never, "did not respond within 0.05 s"), (gone, "does not respond: refused")):
        async with httpx.AsyncClient(transport=httpx.MockTransport(transport)) as http:
            assert reason in (await PrometheusHealth(http, lambda: NOW)(ERRORS)).missing["error rate"]


@pytest.mark.anyio
async def test_without_access_to_prometheus_all_values_are_missing() -> None:
    assert (await unread_health(PROBE)).missing.keys() == {"error rate", "latency"}


@pytest.mark.parametrize(
    ("now", "before", "outcome"),
    [
        (Readings(error_rate=0.05, latency_s=2.0), Readings(), HealthOutcome.GOOD),
        (Readings(error_rate=0.06, latency_s=1.0), Readings(error_rate=0.01), HealthOutcome.WORSE),
        (Readings(error_rate=0.06, latency_s=1.0), Readings(), HealthOutcome.WORSE),
        (Readings(error_rate=0.06, latency_s=1.0), Readings(error_rate=0.06), HealthOutcome.UNCLEAR),
        (Readings(error_rate=0.06, latency_s=1.0), None, HealthOutcome.UNCLEAR),
        (Readings(error_rate=0.01, latency_s=9.0), Readings(latency_s=8.5), HealthOutcome.UNCLEAR),
        (Readings(error_rate=0.01, latency_s=9.0), Readings(latency_s=8.0), HealthOutcome.WORSE),
        (Readings(error_rate=0.01), Readings(), HealthOutcome.UNCLEAR),
        (Readings(latency_s=9.0), Readings(latency_s=1.0), HealthOutcome.WORSE),
    ],
)
def test_health_is_worse_only_beyond_the_limit_and_the_value_before_the_change(
    now: Readings, before: Readings | None, outcome: HealthOutcome
) -> None:
    values = {"error rate": now.error_rate, "latency": now.latency_s}
    missing = {name: "no value" for name, value in values.items() if value is None}
    assert check_health(PROBE, health=Health(readings=now, missing=missing), before=before).outcome is outcome


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"max_error_rate": None}, "max_error_rate: is required with error_rate_query"),
        ({"latency_query": None}, "max_latency_s: is required with latency_query"),
        ({"prometheus_url": "http://user:secret@prometheus/"}, "without user, query or fragment"),
        (
            {"error_rate_query": None, "max_error_rate": None, "latency_query": None, "max_latency_s": None},
            "error_rate_query: is required where latency_query is not given",
        ),
    ],
)
def test_an_incomplete_probe_is_refused(change: dict[str, Any], path: str) -> None:
    with pytest.raises(ValidationError, match=path):
        HealthProbe.model_validate(PROBE.model_dump(mode="json") | change)
