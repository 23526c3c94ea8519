"""Tests that the lab's collectives move the bytes of every rank to every other, and that a lost peer ends the rest."""

import os
import threading
from collections.abc import Callable

import numpy as np
import pytest

from tests.testbed.lab.collectives import Library, own_library
from tests.testbed.lab.mesh import BrokenMeshError, Mesh, connect


def on_all(size: int, use: Callable[[int, Library], object]) -> list[object]:
    """Run every rank in its own thread, over loopback."""
    results: list[object] = [None] * size

    def one(rank: int) -> None:
        results[rank] = use(rank, own_library(rank=rank, size=size, address=loopback))

    threads = [threading.Thread(target=one, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20.0)
        assert not thread.is_alive()
    return results


def loopback(rank: int) -> str:
    return f"127.77.{os.getpid() % 250 + 1}.{rank + 1}"  # one range per test process


@pytest.mark.parametrize(("size", "length"), [(2, 8), (3, 3), (4, 4097), (5, 262_144)])
def test_an_all_reduce_leaves_the_sum_on_every_rank(size: int, length: int) -> None:
    numbers = np.random.default_rng(size).integers(-1000, 1000, (size, length)).astype(np.float32)

    def reduce(rank: int, library: Library) -> object:
        values = numbers[rank].copy()
        library.all_reduce(values)
        return values

    for got in on_all(size, reduce):
        np.testing.assert_array_equal(np.asarray(got), numbers.sum(axis=0))


@pytest.mark.parametrize("size", [2, 3, 5])
def test_an_all_to_all_transposes_the_parts(size: int) -> None:
    parts = np.random.default_rng(size).integers(0, 256, (size, size, 70_001)).astype(np.uint8)

    def exchange(rank: int, library: Library) -> object:
        into = np.zeros(parts[rank].size, np.uint8)
        library.all_to_all(parts[rank].reshape(-1), into)
        return into.reshape(size, -1)

    for rank, got in enumerate(on_all(size, exchange)):
        np.testing.assert_array_equal(np.asarray(got), parts[:, rank])


def test_a_ring_pass_receives_from_the_previous_rank() -> None:
    def pass_on(rank: int, library: Library) -> object:
        into = np.zeros(200_000, np.uint8)
        passed = library.ring_pass(np.full(200_000, rank, np.uint8), into)
        assert passed.received_s > 0.0
        assert passed.sent_s > 0.0
        return int(into[0]), int(into[-1])

    assert on_all(4, pass_on) == [(3, 3), (0, 0), (1, 1), (2, 2)]


def test_sends_keep_their_order_whenever_the_buffers_are_posted() -> None:
    def transfer_parts(rank: int, mesh: Mesh) -> bytes:
        if rank == 0:
            sends = [mesh.send(1, memoryview(bytes([part]) * 100_000)) for part in range(3)]
            for transfer in sends:
                transfer.wait()
            return b""
        buffers = [bytearray(100_000) for _ in range(3)]
        for transfer in [mesh.receive(0, memoryview(buffer)) for buffer in buffers]:
            transfer.wait()
        return bytes(buffer[99_999] for buffer in buffers)

    assert pair(transfer_parts) == [b"", b"\x00\x01\x02"]


def test_a_transfer_with_a_closed_peer_raises() -> None:
    def close_or_raise(rank: int, mesh: Mesh) -> bytes:
        if rank == 0:
            mesh.close()
            return b""
        with pytest.raises(BrokenMeshError):
            mesh.receive(0, memoryview(bytearray(8))).wait()
        with pytest.raises(BrokenMeshError):
            mesh.send(0, memoryview(b"too late"))
        return b"raised"

    assert pair(close_or_raise) == [b"", b"raised"]


def pair(use: Callable[[int, Mesh], bytes]) -> list[bytes]:
    results = [b"", b""]

    def one(rank: int) -> None:
        results[rank] = use(rank, connect(rank=rank, size=2, address=loopback))

    threads = [threading.Thread(target=one, args=(rank,), daemon=True) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20.0)
        assert not thread.is_alive()
    return results
