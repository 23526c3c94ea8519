"""Defines the collectives that a training step needs, and implements them over TCP.

The ring all-reduce sends from r to r-1, as gloo's does: n-1 steps of adding, n-1 steps of forwarding (Patarasuk and
Yuan 2009, the bandwidth-optimal all-reduce); all-to-all runs all transfers at once.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from tests.testbed.lab.mesh import Mesh, Transfer, connect

Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]


class Passed(NamedTuple):
    """Records when the receive and the send of a ring pass completed."""

    received_s: float
    sent_s: float


class Library(Protocol):
    """Defines collectives over all ranks; each returns when this rank is done."""

    def step(self, number: int) -> None:
        """Mark the beginning of a step."""
        ...

    def all_reduce(self, values: Floats) -> None: ...
    def all_to_all(self, out: Bytes, into: Bytes) -> None: ...
    def ring_pass(self, out: Bytes, into: Bytes) -> Passed:
        """Send to r+1, receive from r-1."""
        ...


class OwnLibrary:
    """Implements the collectives over a mesh of connections."""

    def __init__(self, *, rank: int, size: int, mesh: Mesh) -> None:
        self._rank, self._size, self._mesh = rank, size, mesh

    def step(self, number: int) -> None:
        """Do nothing: the step number is not needed here."""

    def all_reduce(self, values: Floats) -> None:
        """Sum in place; every rank ends with the same bits.

        All buffers are posted at once.  Those of the second half are parts of `values`: the data received for a part is
        its sum, which includes this rank's numbers, so the part was sent before.
        """
        chunks, turns = np.array_split(values, self._size), range(self._size - 1)
        spare = [np.empty_like(chunks[(self._rank + 1 + turn) % self._size]) for turn in turns]
        parts = [self._posted(buffer) for buffer in spare]
        sums = [self._posted(chunks[(self._rank + turn) % self._size]) for turn in turns]
        for turn in turns:
            self._send_on(chunks[(self._rank + turn) % self._size])
            parts[turn].wait()
            chunks[(self._rank + 1 + turn) % self._size] += spare[turn]
        for turn in turns:
            self._send_on(chunks[(self._rank - 1 + turn) % self._size])
            sums[turn].wait()

    def all_to_all(self, out: Bytes, into: Bytes) -> None:
        """Send the r-th part of `out` to rank r; the data from rank r becomes the r-th part of `into`."""
        parts_out, parts_in = np.split(out, self._size), np.split(into, self._size)
        parts_in[self._rank][:] = parts_out[self._rank]
        others = [(self._rank + step) % self._size for step in range(1, self._size)]
        receives = [self._mesh.receive(rank, parts_in[rank].data) for rank in others]
        sends = [self._mesh.send(rank, parts_out[rank].data) for rank in others]
        for transfer in (*receives, *sends):
            transfer.wait()

    def ring_pass(self, out: Bytes, into: Bytes) -> Passed:
        received = self._mesh.receive((self._rank - 1) % self._size, into.data)
        sent = self._mesh.send((self._rank + 1) % self._size, out.data)
        return Passed(received.wait(), sent.wait())

    def _posted(self, into: Floats) -> Transfer:
        return self._mesh.receive((self._rank + 1) % self._size, into.view(np.uint8).data)

    def _send_on(self, out: Floats) -> None:
        self._mesh.send((self._rank - 1) % self._size, out.view(np.uint8).data).wait()


def own_library(*, rank: int, size: int, address: Callable[[int], str]) -> Library:
    """Connect to the other ranks."""
    return OwnLibrary(rank=rank, size=size, mesh=connect(rank=rank, size=size, address=address))
