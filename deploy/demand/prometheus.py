"""Reads a target's series from Prometheus: one query for the raw samples of a window, with limits on time and size."""

import asyncio
import math
from http import HTTPStatus
from typing import Literal

import httpx
from pydantic import BaseModel, ValidationError

from api.schemas.demand_sources import PrometheusDemand
from deploy.common.errors import UnreachableError
from planner.demand.profiles import Profile
from planner.demand.replicas import Window
from planner.demand.series import Series

TIMEOUT_S = 10.0
MAX_RESPONSE_BYTES = 32_000_000  # 20 replicas of vLLM with 150 series and 40 samples take about 4 MB


class _Range(BaseModel):
    metric: dict[str, str]
    values: list[tuple[float, str]]


class _Matrix(BaseModel):
    resultType: Literal["matrix"]  # noqa: N815 # Prometheus's name
    result: list[_Range]


class _Response(BaseModel):
    status: Literal["success"]
    data: _Matrix


async def read_series(
    http: httpx.AsyncClient, source: PrometheusDemand, *, profile: Profile, window: Window, headers: dict[str, str]
) -> list[Series]:
    """UnreachableError where the server does not respond in time, refuses, or answers with something else."""
    query = range_query(source, profile=profile, window=window)
    url = f"{str(source.url).rstrip('/')}/api/v1/query"
    data = {"query": query, "time": f"{window.end_s:.3f}", "timeout": f"{TIMEOUT_S:g}s"}
    try:
        async with asyncio.timeout(TIMEOUT_S):
            body = await _post(http, url, data=data, headers=headers)
    except TimeoutError as error:
        raise UnreachableError(f"{source.url} did not respond within {TIMEOUT_S:g} s") from error
    try:
        found = _Response.model_validate_json(body)
    except ValidationError as error:
        raise UnreachableError(f"the response of {source.url} is not Prometheus's") from error
    return [
        Series(
            each.metric.get("__name__", ""),
            {label: value for label, value in each.metric.items() if label != "__name__"},
            tuple((at_s, value) for at_s, text in each.values if not math.isnan(value := float(text))),
        )
        for each in found.data.result
    ]


def range_query(source: PrometheusDemand, *, profile: Profile, window: Window) -> str:
    """All series of the profile, from before the window's start, so that its first scrape has one before it."""
    names = "|".join(dict.fromkeys(profile.series_names()))
    matchers = [f'__name__=~"{names}"']
    matchers += [f'{label}=~"{_quoted(pattern)}"' for label, pattern in sorted(source.selector.items())]
    return f"{{{', '.join(matchers)}}}[{math.ceil(window.length_s + source.max_age_s)}s]"


async def _post(http: httpx.AsyncClient, url: str, *, data: dict[str, str], headers: dict[str, str]) -> bytes:
    body = bytearray()
    try:
        async with http.stream("POST", url, data=data, headers=headers, timeout=TIMEOUT_S) as response:
            async for part in response.aiter_bytes():
                body += part
                if len(body) > MAX_RESPONSE_BYTES:
                    raise UnreachableError(f"{url} returns more than {MAX_RESPONSE_BYTES:,} bytes; narrow `selector`")
    except (httpx.RequestError, httpx.InvalidURL) as error:
        raise UnreachableError(f"{url} does not respond: {str(error) or type(error).__name__}") from error
    if response.status_code != HTTPStatus.OK:
        raise UnreachableError(f"{url} returned {response.status_code}")
    return bytes(body)


def _quoted(pattern: str) -> str:
    return pattern.replace("\\", "\\\\").replace('"', '\\"')
