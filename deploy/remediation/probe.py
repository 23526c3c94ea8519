"""A probe of a node: an all-reduce in pairs with two good nodes, over TCP, by Ray actors.

    good1 -- good2     the reference
    suspect -- good1   must have the right sum, and take at most `SLOWER` times the reference plus `FLOOR_S`
    suspect -- good2   likewise

Both ends send a vector of `FLOATS` numbers at once and add the received one, `ROUNDS` times; the median counts.  A node
that is slow, loses packets, or computes or transfers wrong numbers does not pass.  Without two good nodes there is no
reference, and the node does not pass.
"""

import asyncio
import secrets
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from statistics import median
from typing import Any, Final

import numpy as np
import ray
from numpy.typing import NDArray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from deploy.remediation.actuator import ProbeReading

FLOATS: Final = 1 << 18  # 1 MiB
ROUNDS: Final = 7
SLOWER: Final = 3.0
FLOOR_S: Final = 0.05  # scheduling delay on a busy host
EXCHANGE_S: Final = 20.0  # for all rounds and the connection
READY_S: Final = 60.0  # for an actor to start on a busy node
PAIR: Final = 2


class ProbeActor:
    def __init__(self) -> None:
        self._listener: socket.socket | None = None

    def listen(self, address: str) -> int:
        self._listener = socket.create_server((address, 0))
        self._listener.settimeout(EXCHANGE_S)
        port: int = self._listener.getsockname()[1]
        return port

    def ready(self) -> None:
        """Return once the actor runs."""

    def accept(self, token: bytes) -> float:
        if self._listener is None:
            raise RuntimeError("listen was not called")
        with self._listener:
            while True:
                peer, _address = self._listener.accept()
                with peer:
                    peer.settimeout(EXCHANGE_S)
                    if secrets.compare_digest(_received(peer, len(token)), token):
                        return exchanged(peer, own=1.0)

    def connect(self, address: str, port: int, token: bytes) -> float:
        with socket.create_connection((address, port), timeout=EXCHANGE_S) as peer:
            peer.sendall(token)
            return exchanged(peer, own=2.0)


def exchanged(peer: socket.socket, *, own: float) -> float:
    """Run all rounds, and return the median time of one.  Raise ValueError if a sum is wrong."""
    vector: NDArray[np.float32] = np.full(FLOATS, own, np.float32) + np.arange(FLOATS, dtype=np.float32) % 7
    total = 3.0 + 2 * (np.arange(FLOATS, dtype=np.float32) % 7)  # of the two ends, 1 and 2
    body, durations_s = vector.tobytes(), []
    for _round in range(ROUNDS):
        started_s = time.perf_counter()
        sending = threading.Thread(target=_sent, args=(peer, body), daemon=True)
        sending.start()
        other = np.frombuffer(_received(peer, len(body)), np.float32)
        sending.join()
        if not np.array_equal(vector + other, total):
            raise ValueError("the sum of both vectors is wrong")
        durations_s.append(time.perf_counter() - started_s)
    return median(durations_s)


def reading_of(*, good_s: float, with_good_s: Sequence[float]) -> ProbeReading:
    allowed_s = SLOWER * good_s + FLOOR_S
    worst_s = max(with_good_s)
    detail = (
        f"{worst_s * 1e3:.1f} ms a round at worst, {good_s * 1e3:.1f} between good nodes, allowed {allowed_s * 1e3:.1f}"
    )
    return ProbeReading(passed=worst_s <= allowed_s, detail=detail)


async def probe_on_ray(suspect: str, *, good: Sequence[str], address_of: dict[str, str]) -> ProbeReading:
    if len(good) < PAIR:
        return ProbeReading(passed=False, detail=f"{len(good)} good nodes to compare with, needed: {PAIR}")
    first, second = good[0], good[1]
    try:
        good_s = await _pair(first, second, address_of)
    except (TimeoutError, RayError, OSError) as error:
        return ProbeReading(passed=False, detail=f"good nodes could not exchange: {_line(error)}")
    try:
        with_good_s = [await _pair(suspect, each, address_of) for each in (first, second)]
    except (TimeoutError, RayError, OSError) as error:
        return ProbeReading(passed=False, detail=_line(error))
    return reading_of(good_s=good_s, with_good_s=with_good_s)


async def _pair(one: str, other: str, address_of: dict[str, str]) -> float:
    actor: Any = ray.remote(num_cpus=0)(ProbeActor)
    ends = [
        actor.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote()
        for node in (one, other)
    ]
    token = secrets.token_bytes(16)
    try:
        async with asyncio.timeout(READY_S):
            port, _ready = await asyncio.gather(ends[0].listen.remote(address_of[one]), ends[1].ready.remote())
        async with asyncio.timeout(2 * EXCHANGE_S):
            durations_s: list[float] = await asyncio.gather(
                ends[0].accept.remote(token), ends[1].connect.remote(address_of[one], port, token)
            )
    finally:
        for end in ends:
            with suppress(RayError):
                ray.kill(end, no_restart=True)
    return max(durations_s)


def _sent(peer: socket.socket, body: bytes) -> None:
    with suppress(OSError):  # the receiving end reports the error
        peer.sendall(body)


def _received(peer: socket.socket, size: int) -> bytes:
    whole = bytearray()
    while len(whole) < size:
        part = peer.recv(min(1 << 20, size - len(whole)))
        if not part:
            raise ConnectionError("the other end closed the connection")
        whole += part
    return bytes(whole)


def _line(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[-1].strip() if lines else type(error).__name__
