"""Fuzzes a running service: malformed HTTP over raw sockets, and random requests from its OpenAPI document.

The service must answer no request with a 5xx, except for those that say when to try again, and must not restart.

    python -m bench.service_fuzz --url http://127.0.0.1:8400 --token-file token --requests 100000 --pid 4711
"""

import argparse
import json
import random
import re
import socket
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit
from urllib.request import urlopen

TIMEOUT_S: Final = 60.0
RAW_SHARE: Final = 0.3  # of the requests; the others are well-formed HTTP
THREADS: Final = 4
SENT_LATER: Final = {503}  # with Retry-After
TEXTS: Final = ("", "a", "llm", "\x00", "é", "../x", "%00", "9" * 400, "x" * 5000, "\ud800", "💥", "null", "-1")
NUMBERS: Final = (0, 1, -1, 2**31, 2**63, 10**400, 0.5, -0.0, 1e308)
METHODS: Final = ("GET", "PUT", "POST", "DELETE", "HEAD", "PATCH", "OPTIONS", "BREW", "get")
HEADERS: Final = (
    b"Content-Length: 5\r\nContent-Length: 6",
    b"Content-Length: -1",
    b"Content-Length: 99999999999999999999",
    b"Transfer-Encoding: chunked\r\nContent-Length: 3",
    b"Transfer-Encoding: gzip, chunked",
    b"Upgrade: websocket\r\nConnection: Upgrade",
    b"Upgrade: h2c\r\nConnection: Upgrade",
    b"Expect: 100-continue",
    b"Host: other",
    b"X: \x00\x01",
    b" folded: y",
    b"X:" + b"a" * 70_000,
    b"\r\n".join(b"X-%d: y" % number for number in range(120)),
)


@dataclass(frozen=True, slots=True)
class Operation:
    method: str
    path: str


@dataclass(slots=True)
class Outcome:
    statuses: Counter[int] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)  # what was sent, and what came


def operations(document: Mapping[str, Any]) -> list[Operation]:
    return [
        Operation(method.upper(), path)
        for path, methods in document["paths"].items()
        for method in methods
        if method in {"get", "put", "post", "delete"}
    ]


def fuzz(url: str, *, token: str, count: int, seed: int) -> Outcome:
    """Send the requests, and collect the statuses and the failures."""
    with urlopen(f"{url}/openapi.json", timeout=TIMEOUT_S) as response:  # noqa: S310 - the service under test
        known = operations(json.load(response))
    outcome = Outcome()

    def send(number: int) -> None:
        chance = random.Random(f"{seed}-{number}")
        request = malformed(chance) if chance.random() < RAW_SHARE else random_request(chance, known, token=token)
        status, received = exchange(url, request, chance)
        outcome.statuses[status] += 1
        if status >= 500 and not (status in SENT_LATER and b"retry-after" in received.lower()):
            outcome.failures.append(f"request {number}: {request[:300]!r}\n  -> {received[:500]!r}")

    with ThreadPoolExecutor(THREADS) as pool:
        for _done in pool.map(send, range(count)):
            pass
    return outcome


def exchange(url: str, request: bytes, chance: random.Random) -> tuple[int, bytes]:
    """Send bytes in one or several parts; return the status (0: none) and the response."""
    place, received = urlsplit(url), bytearray()
    with socket.create_connection((place.hostname, place.port or 80), timeout=TIMEOUT_S) as connection:
        with suppress(OSError):
            cut = chance.randrange(len(request) + 1) if chance.random() < 0.2 else len(request)
            connection.sendall(request[:cut])
            connection.sendall(request[cut:])
            connection.shutdown(socket.SHUT_WR)  # no more comes: the server need not wait for the rest
        with suppress(OSError):
            while part := connection.recv(65536):
                received += part
    found = re.match(rb"HTTP/1\.\d (\d{3})", received)
    return (int(found[1]) if found else 0), bytes(received)


def malformed(chance: random.Random) -> bytes:
    """Create bytes that are no good request."""
    kind: Sequence[Callable[[], bytes]] = (
        lambda: chance.randbytes(chance.randrange(1, 2000)),
        lambda: b"GET /v1/gpus HTTP/1.1\r\nHost: x\r\n" + chance.choice(HEADERS) + b"\r\n\r\n" + chance.randbytes(20),
        lambda: b"POST /v1/plans HTTP/1.1\r\nHost: x\r\n" + chance.choice(HEADERS) + b"\r\n\r\n5\r\nabcde\r\n0\r\n\r\n",
        lambda: b"GET " + quote(chance.choice(TEXTS), errors="replace").encode() + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        lambda: chance.choice((b"GET", b"\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n")),
        lambda: b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n" * chance.randrange(1, 60),
        lambda: mutated(chance, b"PUT /v1/freeze HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"),
    )
    return chance.choice(kind)()


def mutated(chance: random.Random, request: bytes) -> bytes:
    found = bytearray(request)
    for _each in range(chance.randrange(1, 6)):
        found[chance.randrange(len(found))] = chance.randrange(256)
    return bytes(found)


def random_request(chance: random.Random, known: Sequence[Operation], *, token: str) -> bytes:
    operation = chance.choice(known)
    path = re.sub(r"\{\w+\}", lambda _: quote(chance.choice(TEXTS), errors="replace", safe=""), operation.path)
    if chance.random() < 0.3:
        path += f"?{quote(chance.choice(TEXTS), errors='replace')}={quote(str(chance.choice(NUMBERS)))}"
    method = operation.method if chance.random() < 0.9 else chance.choice(METHODS)
    body = random_body(chance)
    headers = [f"{method} {path} HTTP/1.1", "Host: x", "Connection: close", f"Content-Length: {len(body)}"]
    if chance.random() < 0.95:
        headers.append(f"Authorization: Bearer {token}")
    if chance.random() < 0.9:
        headers.append("Content-Type: application/json")
    if chance.random() < 0.5:
        headers.append("Prefer: respond-async")
    headers.append(chance.choice(("If-Match: *", "If-None-Match: *", 'If-Match: "0-0"', "Accept-Encoding: gzip")))
    return "\r\n".join([*headers, "", ""]).encode() + body


def random_body(chance: random.Random) -> bytes:
    if chance.random() < 0.1:
        return chance.randbytes(chance.randrange(3000))
    text = json.dumps(random_value(chance, depth=0), ensure_ascii=chance.random() < 0.5)
    return mutated(chance, text.encode(errors="replace")) if chance.random() < 0.1 else text.encode(errors="replace")


def random_value(chance: random.Random, *, depth: int) -> Any:
    if depth > 4 or chance.random() < 0.4:
        return chance.choice((None, True, False, chance.choice(TEXTS), chance.choice(NUMBERS)))
    if chance.random() < 0.5:
        return [random_value(chance, depth=depth + 1)] * chance.choice((0, 1, 2, 300 if depth > 2 else 3))
    names = ("workloads", "spec", "mode", "name", "frozen", "reason", "offers", "scopes", *TEXTS)
    return {chance.choice(names): random_value(chance, depth=depth + 1) for _each in range(chance.randrange(5))}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--url", required=True)
    parser.add_argument("--token-file", type=Path, required=True)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pid", type=int, help="of the service: it must be the same process at the end")
    given = parser.parse_args()
    outcome = fuzz(given.url, token=given.token_file.read_text().strip(), count=given.requests, seed=given.seed)
    print(dict(sorted(outcome.statuses.items())))
    for failure in outcome.failures[:20]:
        print(failure)
    alive = given.pid is None or Path(f"/proc/{given.pid}").exists()
    print(f"{given.requests:,} requests, {len(outcome.failures)} failures, the process {'runs' if alive else 'ENDED'}")
    return 0 if alive and not outcome.failures else 1


if __name__ == "__main__":
    sys.exit(main())
