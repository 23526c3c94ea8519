"""Attacks on a real service: each one of them once stopped its event loop, or ended it for want of memory or of files.

While an attack runs, a probe asks for `/livez` fifty times a second, each time over a new connection.
"""

import json
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

from api.store import Migrations
from tests.testbed.livez import LivezProbe, livez_probe
from tests.testbed.proc import peak_memory_bytes
from tests.testbed.processes import LOOPBACK
from tests.testbed.server import ADMIN_TOKEN, Server, running_servers
from tests.testbed.soak import SOAK

LIVEZ_P99_S: Final = 0.1 if SOAK else 0.5  # the short form runs beside other tests; these attacks took seconds
MAX_PEAK_BYTES: Final = 512 * 1024 * 1024
MAX_LOG_BYTES: Final = 100_000
MAX_FILES: Final = 1024
ATTEMPTS: Final = 3  # other work on the machine may delay one of them; a loop that stands still delays all
HEAD: Final = b"GET /livez HTTP/1.1\r\nHost: x\r\n"
MIB: Final = 1024 * 1024


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("attacked")
    url = f"sqlite+aiosqlite:///{folder}/fleetwright.db"
    Migrations(url).upgrade()
    with running_servers(folder) as start:
        yield start(url, max_files=MAX_FILES, rate_limit_per_s="100000", rate_limit_burst="100000")


@pytest.fixture(autouse=True)
def intact(server: Server) -> Iterator[None]:
    """Check after each attack that the same process still serves, in bounded memory and with a short log."""
    yield
    assert server.process.running(), server.process.log_tail()
    assert ask(server, HEAD + b"Connection: close\r\n\r\n").startswith(b"HTTP/1.1 200")
    assert peak_memory_bytes(server.process.pid) < MAX_PEAK_BYTES
    assert server.process.log_path.stat().st_size < MAX_LOG_BYTES


def connect(server: Server, *, timeout_s: float = 60.0) -> socket.socket:
    return socket.create_connection((LOOPBACK, urlsplit(server.url).port or 0), timeout=timeout_s)


def ask(server: Server, *parts: bytes, timeout_s: float = 60.0) -> bytes:
    """Send the parts until the server closes the connection, and return everything it sent."""
    with connect(server, timeout_s=timeout_s) as connection:
        with suppress(ConnectionError):
            for part in parts:
                connection.sendall(part)
        received = bytearray()
        with suppress(ConnectionResetError):
            while part := connection.recv(65536):
                received += part
    return bytes(received)


def send(server: Server, method: str, path: str, body: bytes) -> tuple[int, Any]:
    """Send a request with a token; return status and document."""
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ADMIN_TOKEN}\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nIf-None-Match: *\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    received = ask(server, head.encode(), body)
    return int(received.split()[1]), json.loads(received.partition(b"\r\n\r\n")[2])


@pytest.fixture(scope="module")
def probe(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LivezProbe]:
    with livez_probe(urlsplit(server.url).port or 0, tmp_path_factory.mktemp("probe")) as probe:
        yield probe


def assert_stays_live(probe: LivezProbe, attack: Callable[[], None]) -> None:
    attempts = []
    for _attempt in range(ATTEMPTS):
        with probe.running() as times:
            attack()
        attempts.append(times.added_p99_s)
        if times.added_p99_s < LIVEZ_P99_S:
            return
    pytest.fail(f"added p99 of /livez in each attempt: {', '.join(f'{p99_s:.3f} s' for p99_s in attempts)}")


def wrong_items(size_bytes: int) -> bytes:
    return b'{"workloads":[' + b"0," * (size_bytes // 2) + b"0]}"


def unknown_keys(count: int) -> bytes:
    return json.dumps({f"k{number}": 0 for number in range(count)}, separators=(",", ":")).encode()


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(wrong_items(7_800_000), id="7.8 MB of wrong items"),
        pytest.param(wrong_items(1_000_000), id="1 MB of wrong items"),
        pytest.param(wrong_items(200_000), id="0.2 MB of wrong items"),
        pytest.param(wrong_items(16_000), id="16 kB of wrong items"),
        pytest.param(unknown_keys(640_000), id="7.1 MB of unknown keys"),
        pytest.param(b'{"' + b"k" * 7_000_000 + b'":0}', id="one key of 7 MB"),
        pytest.param(b'{"workloads":[' + b"[]," * 2_600_000 + b"0]}", id="2.6 million lists"),
        pytest.param(b'{"workloads":' + b"[" * 7_000_000, id="7 million levels"),
        pytest.param(b'{"workloads":' + b"9" * 7_000_000 + b"}", id="7 million digits"),
        pytest.param(wrong_items(7_800_000)[:-1], id="7.8 MB without an end"),
    ],
)
def test_wrong_bodies_of_jobs(server: Server, probe: LivezProbe, body: bytes) -> None:
    assert_are_refused(server, probe, "POST", "/v1/plans", body)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(wrong_items(1_000_000), id="1 MB of wrong items"),
        pytest.param(wrong_items(200_000), id="0.2 MB of wrong items"),
        pytest.param(wrong_items(16_000), id="16 kB of wrong items"),
        pytest.param(unknown_keys(90_000), id="1 MB of unknown keys"),
        pytest.param(b'{"offers":[' + b"[]," * 340_000 + b"0]}", id="340,000 lists"),
    ],
)
def test_wrong_bodies_of_documents(server: Server, probe: LivezProbe, body: bytes) -> None:
    assert_are_refused(server, probe, "PUT", "/v1/offers", body)


def assert_are_refused(server: Server, probe: LivezProbe, method: str, path: str, body: bytes) -> None:
    def attack() -> None:
        with ThreadPoolExecutor(3) as pool:
            for status, problem in pool.map(lambda _: send(server, method, path, body), range(3)):
                assert status in {400, 422}, problem
                assert len(problem["errors"]) <= 100
                assert len(json.dumps(problem)) < 150_000

    assert_stays_live(probe, attack)


def test_mistakes_behind_the_part_that_is_checked_first(server: Server, probe: LivezProbe) -> None:
    body = b'{"workloads":[' + b'{"name":"a","model":"m"},' * 1_000 + b"0," * 3_500_000 + b"0]}"
    assert_are_refused(server, probe, "POST", "/v1/plans", body)


def test_huge_valid_bodies(server: Server, probe: LivezProbe) -> None:
    """Each is near the limit of its route; the second write of the same name has the wrong precondition."""
    offers = [
        {
            "id": f"p/{number}",
            "provider": "p",
            "region": "eu",
            "market": "on-demand",
            "gpu": "H100-SXM5-80GB",
            "price_usd_per_h": 2.0,
            "as_of": "2026-11-01",
            "source": "list",
        }
        for number in range(6_000)
    ]
    body = json.dumps({"offers": offers}).encode()
    assert 0.7 * MIB < len(body) < MIB

    def attack() -> None:
        with ThreadPoolExecutor(3) as pool:
            answers = list(pool.map(lambda _: send(server, "PUT", "/v1/offers", body), range(6)))
        assert {status for status, _problem in answers} <= {412, 428}, answers[0]

    assert_stays_live(probe, attack)


@pytest.mark.parametrize(
    "chunk",
    [pytest.param(b"a" * 65536, id="one unfinished header"), pytest.param(b"abcde:fg\r\n" * 6554, id="small headers")],
)
def test_96_mib_of_headers(server: Server, probe: LivezProbe, chunk: bytes) -> None:
    def attack() -> None:
        with ThreadPoolExecutor(4) as pool:
            chunks = [HEAD + (b"X: " if b"\r" not in chunk else b""), *[chunk] * (96 * MIB // len(chunk))]
            for received in pool.map(lambda _: ask(server, *chunks), range(40)):
                assert received.startswith(b"HTTP/1.1 431") or received == b""  # the reset may overtake the response

    assert_stays_live(probe, attack)


def test_1200_half_requests(server: Server, probe: LivezProbe) -> None:
    """More than the server may open files."""

    def attack() -> None:
        with ExitStack() as held:
            for _each in range(1_200):
                held.enter_context(connect(server)).sendall(HEAD + b"X-")
            time.sleep(2)

    assert_stays_live(probe, attack)


def test_400_slow_bodies(server: Server, probe: LivezProbe) -> None:
    head = (
        f"POST /v1/plans HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ADMIN_TOKEN}\r\nContent-Length: 1000000\r\n\r\n"
    )

    def attack() -> None:
        with ExitStack() as held:
            slow = [held.enter_context(connect(server)) for _each in range(400)]
            for part in (head.encode(), b"x", b"x"):
                for each in slow:
                    with suppress(ConnectionError):
                        each.sendall(part)
            time.sleep(1)

    assert_stays_live(probe, attack)


def test_bodies_that_never_end(server: Server, probe: LivezProbe) -> None:
    """Each of the connections holds nearly the limit of a plan."""
    head = (
        f"POST /v1/plans HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ADMIN_TOKEN}\r\nContent-Length: 8000000\r\n\r\n"
    )

    def attack() -> None:
        with ExitStack() as held:
            for _each in range(40):
                with suppress(ConnectionError):
                    held.enter_context(connect(server)).sendall(head.encode() + b"x" * 7_900_000)
            time.sleep(1)

    assert_stays_live(probe, attack)


@pytest.mark.parametrize("path", ["/openapi.json", "/docs/swagger-ui-bundle.js"])
def test_responses_that_nobody_reads(server: Server, probe: LivezProbe, path: str) -> None:
    def attack() -> None:
        with ExitStack() as held:
            for encoding in (b"gzip", b"identity") * 40:
                request = b"GET %s HTTP/1.1\r\nHost: x\r\nAccept-Encoding: %s\r\n\r\n" % (path.encode(), encoding)
                held.enter_context(connect(server)).sendall(request)
            time.sleep(1)

    assert_stays_live(probe, attack)


def test_metrics_for_everybody(server: Server, probe: LivezProbe) -> None:
    def attack() -> None:
        with ThreadPoolExecutor(6) as pool:
            request = b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
            for received in pool.map(lambda _: ask(server, request), range(300)):
                assert received.startswith(b"HTTP/1.1 200")

    assert_stays_live(probe, attack)
