"""Fixtures of the client's tests: both clients behind one function, retries without waits."""

import asyncio
from collections.abc import Iterator
from typing import Any, Protocol, TypeVar

import httpx
import pytest
import stamina

from api.client import AsyncClient, Client
from api.client.calls import Call

URL = "http://fleet.test"
ResultT = TypeVar("ResultT")


class Send(Protocol):
    """Carries out a call with one of the two clients."""

    def __call__(self, call: Call[ResultT], transport: httpx.MockTransport, **options: Any) -> ResultT:
        """`options` are those of the client."""


def send_blocking(call: Call[ResultT], transport: httpx.MockTransport, **options: Any) -> ResultT:
    with Client(URL, transport=transport, **options) as client:
        return client.send(call)


def send_asynchronous(call: Call[ResultT], transport: httpx.MockTransport, **options: Any) -> ResultT:
    async def send() -> ResultT:
        async with AsyncClient(URL, transport=transport, **options) as client:
            return await client.send(call)

    return asyncio.run(send())


@pytest.fixture(params=[send_blocking, send_asynchronous], ids=["blocking", "asynchronous"])
def send(request: pytest.FixtureRequest) -> Send:
    """Runs each test that uses this fixture with both clients."""
    chosen: Send = request.param
    return chosen


@pytest.fixture(autouse=True)
def no_waiting() -> Iterator[None]:
    """The number of attempts that the code requests, without pauses."""
    with stamina.set_testing(True, attempts=100, cap=True):
        yield
