"""The exchange of a probe over a real connection, and the comparison of its times.  With Ray: tests/cluster."""

import asyncio
import socket
import threading
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ray", reason="ray is not installed", exc_type=ImportError)

import ray

from deploy.remediation.probe import FLOATS, ProbeActor, exchanged, probe_on_ray, reading_of


def test_two_ends_connect_with_a_token_and_both_sums_are_correct() -> None:
    listening, calling = ProbeActor(), ProbeActor()
    port, token, took_s = listening.listen("127.0.0.1"), b"w" * 16, []
    answering = threading.Thread(target=lambda: took_s.append(listening.accept(token)))
    answering.start()
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(b"x" * 16)
        assert client.recv(1) == b""
    took_s.append(calling.connect("127.0.0.1", port, token))
    answering.join()
    assert all(each > 0 for each in took_s)
    assert len(took_s) == 2


def test_a_wrong_sum_fails_the_probe() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        wrong = threading.Thread(target=lambda: theirs.sendall(np.zeros(FLOATS, np.float32).tobytes()))
        drained = threading.Thread(target=lambda: [None for _ in iter(lambda: theirs.recv(1 << 20), b"")])
        for thread in (wrong, drained):
            thread.start()
        with pytest.raises(ValueError, match="sum of both vectors is wrong"):
            exchanged(ours, own=1.0)
        ours.shutdown(socket.SHUT_RDWR)
        for thread in (wrong, drained):
            thread.join()


@pytest.mark.parametrize(("with_good_s", "passed"), [([0.010, 0.011], True), ([0.010, 0.079], True), ([0.081], False)])
def test_a_node_passes_if_it_is_nearly_as_fast_as_good_nodes(with_good_s: list[float], passed: bool) -> None:  # noqa: FBT001
    assert reading_of(good_s=0.010, with_good_s=with_good_s).passed is passed


@pytest.mark.anyio
async def test_without_two_good_nodes_a_probe_has_no_result() -> None:
    reading = await probe_on_ray("s", good=["a"], address_of={})
    assert (reading.passed, reading.detail) == (False, "1 good nodes to compare with, needed: 2")


class SlowToStart:
    """A handle of an actor: the second of a pair starts long after the first, and its calls wait."""

    def __init__(self, calls: list[str], started: asyncio.Future[None]) -> None:
        self._calls, self._started = calls, started

    def __getattr__(self, method: str) -> Any:
        self._method = method
        return self

    async def remote(self, *_args: Any) -> Any:
        method = self._method
        await self._started
        self._calls.append(method)
        return {"listen": 1, "ready": None}.get(method, 0.01)


@pytest.mark.anyio
async def test_no_exchange_begins_before_both_ends_have_started(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    starting: list[asyncio.Future[None]] = []

    def made(_self: Any) -> SlowToStart:
        starting.append(asyncio.get_running_loop().create_future())
        return SlowToStart(calls, starting[-1])

    actor = type("Actor", (), {"options": lambda self, **_options: self, "remote": made})()
    monkeypatch.setattr(ray, "remote", lambda **_options: lambda _class: actor)
    monkeypatch.setattr(ray, "kill", lambda _actor, no_restart: no_restart)
    suspect, *good = (letter * 56 for letter in "abc")
    addresses = dict.fromkeys([suspect, *good], "127.0.0.1")
    probing = asyncio.create_task(probe_on_ray(suspect, good=good, address_of=addresses))
    for pair in range(3):
        while len(starting) < 2 * (pair + 1):
            assert not probing.done(), probing.result()
            await asyncio.sleep(0)
        calls.clear()
        first, second = starting[-2:]
        first.set_result(None)
        for _ in range(10):
            await asyncio.sleep(0)
        assert calls == ["listen"], "the exchange has not started"
        second.set_result(None)
    assert (await probing).passed
