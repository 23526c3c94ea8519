"""Runs the same collectives with PyTorch over gloo, recorded by the project's wrapper with a single call.

torch is no dependency of this project, so the import is late.
"""

import time
from pathlib import Path
from typing import Any

from fleetwright.collectives import watch
from tests.testbed.lab.collectives import Bytes, Floats, Passed


class GlooLibrary:
    """Uses torch.distributed with a file for its rendezvous, so that no store's traffic is on the links."""

    def __init__(self, *, rank: int, size: int, store: Path, to: str) -> None:
        import torch  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415 - see above
        import torch.distributed as dist  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415

        torch.set_num_threads(1)
        self._torch: Any = torch
        self._dist: Any = dist
        self._rank, self._size = rank, size
        met = dist.FileStore(str(store), size)
        dist.init_process_group("gloo", store=met, rank=rank, world_size=size)
        self._watch = watch(dist, to=to)

    def step(self, number: int) -> None:
        self._watch.step(number)

    def all_reduce(self, values: Floats) -> None:
        self._dist.all_reduce(self._torch.from_numpy(values))

    def all_to_all(self, out: Bytes, into: Bytes) -> None:
        self._dist.all_to_all_single(self._torch.from_numpy(into), self._torch.from_numpy(out))

    def ring_pass(self, out: Bytes, into: Bytes) -> Passed:
        received = self._dist.irecv(self._torch.from_numpy(into), (self._rank - 1) % self._size)
        sent = self._dist.isend(self._torch.from_numpy(out), (self._rank + 1) % self._size)
        received.wait()
        received_s = time.time()
        sent.wait()
        return Passed(received_s, time.time())

    def dump_flight(self, path: Path) -> None:
        """Write the flight recorder as JSON, without the stacks, which take seconds on a busy host."""
        path.write_bytes(self._torch._C._distributed_c10d._dump_fr_trace_json())
