"""The policy that follows published counts, against a small HTTP server: it holds the last count whatever fails."""

import gc
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fleetwright.serve_policy import MAX_BODY_BYTES, FollowPublishedCount, _counts_of
from tests.testbed.waiting import wait_for

PATH = "/v1/targets/chat/wanted"


def answer(**counts: object) -> bytes:
    return json.dumps({"parts": [{"unit": unit, "replicas": count} for unit, count in counts.items()]}).encode()


@dataclass
class Api:
    """Answers every request with the present status and body."""

    status: int = 200
    body: bytes = answer(prefill=3, decode=5)
    headers: dict[str, str] = field(default_factory=dict)
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    url: str = ""


@pytest.fixture
def api() -> Iterator[Api]:
    state = Api()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.requests.append((self.path, self.headers.get("Authorization")))
            self.send_response(state.status)
            for name, value in state.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(state.body)))
            self.end_headers()
            self.wfile.write(state.body)

        def log_message(self, *_arguments: Any) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_port}"
    yield state
    server.shutdown()
    server.server_close()
    thread.join()


def tick(policy: FollowPublishedCount, deployment: str = "prefill", *, running: int = 2) -> int:
    """Call the policy as a tick of Serve's controller does."""
    replicas, state = policy(SimpleNamespace(deployment_name=deployment, target_num_replicas=running))
    assert state == {}
    return replicas


def follow(api: Api, **options: Any) -> FollowPublishedCount:
    return FollowPublishedCount(url=api.url, target="chat", interval_s=0.1, **options)


def wait_for_requests(api: Api, more: int = 2) -> None:
    """Wait until the policy has read again, wholly with the present answer."""
    seen = len(api.requests)
    wait_for(lambda: len(api.requests) >= seen + more, what="further requests")


def test_each_deployment_follows_its_count(api: Api) -> None:
    policy = follow(api)
    assert wait_for(lambda: tick(policy), (3).__eq__, what="the count of prefill") == 3
    assert tick(policy, "decode") == 5
    assert tick(policy, "router", running=4) == 4, "a deployment without a count keeps its number"
    api.body = answer(prefill=0, decode=9)
    wait_for(lambda: (tick(policy), tick(policy, "decode")), (0, 9).__eq__, what="the new counts")
    assert {path for path, _ in api.requests} == {PATH}


def fails(status: int) -> Callable[[Api], None]:
    def change(api: Api) -> None:
        api.status = status

    return change


def responds(body: bytes) -> Callable[[Api], None]:
    def change(api: Api) -> None:
        api.body = body

    return change


@pytest.mark.parametrize(
    "change",
    [
        fails(404),
        fails(401),
        fails(503),
        responds(b""),
        responds(b"[]"),
        responds(b'{"parts": null}'),
        responds(answer(prefill=None)),
        responds(answer(prefill=-1)),
        responds(answer(prefill=True)),
        responds(answer(prefill="4")),
        responds(b" " * (MAX_BODY_BYTES + 1)),
        responds(answer(decode=9)),
    ],
)
def test_the_last_count_stays_whatever_the_service_answers(api: Api, change: Callable[[Api], None]) -> None:
    policy = follow(api)
    wait_for(lambda: tick(policy), (3).__eq__, what="the count of prefill")
    change(api)
    wait_for_requests(api)
    assert tick(policy, running=7) == 3

    api.status, api.body = 200, answer(prefill=4)
    wait_for(lambda: tick(policy), (4).__eq__, what="the next count")


def test_before_the_first_count_serve_keeps_its_number() -> None:
    policy = FollowPublishedCount(url="http://127.0.0.1:1", target="chat", interval_s=0.1, timeout_s=0.1)
    assert [tick(policy, running=running) for running in (2, 6)] == [2, 6]


def test_the_token_is_read_again_for_each_request(api: Api, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    policy = follow(api, token_file=str(token))
    tick(policy)
    wait_for(lambda: api.requests, what="a request")
    token.write_text("second\n")
    wait_for(lambda: api.requests[-1][1], "Bearer second".__eq__, what="the new token")
    assert api.requests[0][1] == "Bearer first"


def test_the_token_does_not_follow_a_redirect(api: Api, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    api.status, api.headers = 302, {"Location": f"{api.url}/elsewhere"}
    policy = follow(api, token_file=str(token))
    assert tick(policy, running=2) == 2
    wait_for_requests(api)
    assert {path for path, _ in api.requests} == {PATH}


def test_the_thread_ends_with_its_policy(api: Api) -> None:
    before = set(threading.enumerate())
    policy = follow(api)
    tick(policy)
    (started,) = [thread for thread in set(threading.enumerate()) - before if thread.name == "fleetwright-counts"]
    del policy
    gc.collect()
    wait_for(started.is_alive, lambda alive: not alive, what="end of the thread")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"url": "file:///etc/passwd"}, "url: must be an http or https URL"),
        ({"interval_s": 0.0}, r"interval_s: allowed: 0\.1 to 3600"),
        ({"timeout_s": 1e9}, r"timeout_s: allowed: 0\.1 to 3600"),
    ],
)
def test_a_wrong_option_is_refused_by_name_and_range(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        FollowPublishedCount(**{"url": "http://api", "target": "chat"} | options)


def test_counts_are_read_by_the_unit_that_the_service_reports() -> None:
    assert _counts_of(answer(a=0, b=10_000)) == {"a": 0, "b": 10_000}
