"""Reads a target's health probe: one instant query to Prometheus per value, with limits on time and size.

A value that is not a fresh finite number is missing, with the reason.  Of several series the worst counts.
"""

import asyncio
import json
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any, Literal, Protocol

import httpx
import structlog
from pydantic import BaseModel, Discriminator, ValidationError

from api.schemas.probes import HealthProbe
from api.schemas.target_hosts import AllowedHosts
from api.schemas.target_state import Readings
from deploy.common.errors import UnreachableError
from deploy.common.target_http import target_client
from deploy.controller.health_check import Health

log = structlog.get_logger()

TIMEOUT_S = 5.0  # for one value, from connecting to the last byte
MAX_RESPONSE_BYTES = 1_000_000
MAX = 1e12  # stands for an infinite value (a histogram's last bucket)

Sample = tuple[float, str]


class _Series(BaseModel):
    value: Sample


class _Vector(BaseModel):
    resultType: Literal["vector"]  # noqa: N815 # Prometheus's name
    result: list[_Series]

    @property
    def samples(self) -> list[Sample]:
        return [series.value for series in self.result]


class _Scalar(BaseModel):
    resultType: Literal["scalar"]  # noqa: N815 # Prometheus's name
    result: Sample

    @property
    def samples(self) -> list[Sample]:
        return [self.result]


class _QueryResponse(BaseModel):
    status: Literal["success"]
    data: Annotated[_Vector | _Scalar, Discriminator("resultType")]


class HealthReader(Protocol):
    async def __call__(self, probe: HealthProbe) -> Health:
        """Read every value that the probe names; never fails."""


@dataclass(frozen=True, slots=True)
class PrometheusHealth:
    http: httpx.AsyncClient
    now: Callable[[], datetime]

    async def __call__(self, probe: HealthProbe) -> Health:
        queries = {"error rate": probe.error_rate_query, "latency": probe.latency_query}
        found: dict[str, float] = {}
        missing: dict[str, str] = {}
        for name, query in queries.items():
            if query is None:
                continue
            try:
                found[name] = await self._value(probe, query)
            except UnreachableError as error:
                missing[name] = str(error)
        readings = Readings(error_rate=found.get("error rate"), latency_s=found.get("latency"))
        return Health(readings=readings, missing=missing)

    async def _value(self, probe: HealthProbe, query: str) -> float:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                response = _read(await self._fetch(probe, query))
        except TimeoutError as error:
            raise UnreachableError(f"{probe.prometheus_url} did not respond within {TIMEOUT_S:g} s") from error
        samples = response.data.samples
        if not samples:
            raise UnreachableError("the query gives no value")
        oldest_s = self.now().timestamp() - min(at_s for at_s, _value in samples)
        if oldest_s > probe.max_age_s:
            raise UnreachableError(f"the value is {oldest_s:.0f} s old; allowed: at most {probe.max_age_s:g} s")
        values = [_number(text) for _at_s, text in samples]
        if any(math.isnan(value) or value < 0.0 for value in values):
            raise UnreachableError(f"the query gives {', '.join(sorted({text for _at_s, text in samples}))[:100]}")
        return min(MAX, max(values))

    async def _fetch(self, probe: HealthProbe, query: str) -> bytes:
        url = f"{str(probe.prometheus_url).rstrip('/')}/api/v1/query"
        body = b""
        try:
            async with self.http.stream("POST", url, data={"query": query}, timeout=TIMEOUT_S) as response:
                async for part in response.aiter_bytes():
                    body += part
                    if len(body) > MAX_RESPONSE_BYTES:
                        raise UnreachableError(f"{probe.prometheus_url} returns more than {MAX_RESPONSE_BYTES} bytes")
        except (httpx.RequestError, httpx.InvalidURL) as error:
            reason = str(error) or type(error).__name__
            raise UnreachableError(f"{probe.prometheus_url} does not respond: {reason}") from error
        if response.status_code != HTTPStatus.OK:
            log.warning("prometheus_refused", url=str(probe.prometheus_url), reason=_excerpt(body))
            raise UnreachableError(f"{probe.prometheus_url} returned {response.status_code}")
        return body


async def unread_health(probe: HealthProbe) -> Health:
    """Return the health for a process without access to Prometheus."""
    queries = {"error rate": probe.error_rate_query, "latency": probe.latency_query}
    missing = {name: "this controller does not read health" for name, query in queries.items() if query is not None}
    return Health(readings=Readings(), missing=missing)


@asynccontextmanager
async def prometheus_health(*, allowed: AllowedHosts, now: Callable[[], datetime]) -> AsyncIterator[PrometheusHealth]:
    async with target_client(allowed) as http:
        yield PrometheusHealth(http, now)


def _read(body: bytes) -> _QueryResponse:
    try:
        return _QueryResponse.model_validate_json(body)
    except ValidationError as error:
        raise UnreachableError(f"the response is not Prometheus's: {error.errors()[0]['msg']}") from error


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _excerpt(body: bytes) -> str:
    """Return Prometheus's own reason, where the body has one."""
    try:
        found: Any = json.loads(body)
        return str(found["error"])[:200]
    except (ValueError, KeyError, TypeError, RecursionError):
        return "no reason given"
