"""Tests that the gate forwards, counts, holds before and after, and refuses."""

import threading
from collections.abc import Iterator

import httpx
import pytest

from tests.testbed.gate import Answering, Gate, Hold, running_gate
from tests.testbed.waiting import PATIENCE_S, wait_for


@pytest.fixture
def gate() -> Iterator[Gate]:
    with running_gate() as gate:
        yield gate


def echo(received: list[str]) -> Answering:
    async def respond(request: httpx.Request) -> httpx.Response:
        received.append(f"{request.method} {request.url.raw_path.decode()} {request.content.decode()}")
        return httpx.Response(201, json={"said": "yes"}, headers={"ETag": '"1"'})

    return respond


def test_requests_are_forwarded_to_the_registered_service(gate: Gate) -> None:
    received: list[str] = []
    gate.behind["a"] = echo(received)
    response = send(f"{gate.url}/a/x/y?b=c", "POST", content=b"body")
    assert (response.status_code, response.json(), response.headers["ETag"]) == (201, {"said": "yes"}, '"1"')
    assert send(f"{gate.url}/a/x/").status_code == 201
    assert received == ["POST /x/y?b=c body", "GET /x/ "]
    assert send(f"{gate.url}/b/x").status_code == 503
    passed = [(each.method, each.path, each.status) for each in gate.passed]
    assert passed == [("POST", "/a/x/y", 201), ("GET", "/a/x/", 201), ("GET", "/b/x", 503)]


@pytest.mark.parametrize("after", [False, True])
def test_a_held_request_gets_no_response(gate: Gate, *, after: bool) -> None:
    received: list[str] = []
    gate.behind["a"] = echo(received)
    hold = Hold("GET", "/a/.*", nth=2, after=after)
    gate.holds.append(hold)
    assert send(f"{gate.url}/a/1").is_success
    lost = threading.Thread(target=send_without_response, args=(f"{gate.url}/a/2",))
    lost.start()
    hold.wait()
    assert len(received) == 1 + after
    lost.join()
    wait_for(hold.given_up.is_set, what="giving up")
    assert hold.given_up_s is not None
    assert hold.given_up_s > gate.passed[0].came_s
    assert [each.path for each in gate.passed] == ["/a/1"]
    assert send(f"{gate.url}/a/3").is_success


def send(url: str, method: str = "GET", *, content: bytes | None = None) -> httpx.Response:
    """Send a request with a timeout for a busy machine."""
    return httpx.request(method, url, content=content, timeout=PATIENCE_S, trust_env=False)


def send_without_response(url: str) -> None:
    with pytest.raises(httpx.TimeoutException):
        httpx.get(url, timeout=httpx.Timeout(PATIENCE_S, read=1.0), trust_env=False)
