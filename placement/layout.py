"""The slots for expert copies: slots on GPUs on nodes, and the speed of each GPU.

GPUs are numbered node by node, slots GPU by GPU, as every engine numbers its expert-parallel ranks: with equal counts
slot s lies on GPU s // (slots / GPUs), GPU g on node g // (GPUs / nodes).

With M_g bytes for experts and L MoE layers, floor(M_g / (L expert_bytes)) slots fit GPU g.  Slots are distributed as
evenly as this limit allows: every GPU gets its even part, and the excess of smaller GPUs goes to the others.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from fleet.documents import RuleError, Violation
from placement.arrays import MAX_GPUS, MAX_SLOTS, Floats, Ints

MIN_SPEED, MAX_SPEED = 1e-3, 1e3
MAX_EXPERT_BYTES = 10**12
MAX_GPU_GB = 10_000
GIGABYTE = 10**9


class LayoutArrays(NamedTuple):
    """A layout for compiled code; `placement.dispatch.LAYOUT` is its numba type."""

    gpu_of_slot: Ints
    node_of_gpu: Ints
    first_slot: Ints
    shares: Floats


@dataclass(frozen=True, eq=False)
class Layout:
    """The slots of one layer; all layers are equal.  Create with `even` or `of`, which check the values."""

    node_of_gpu: Ints  # from 0, never falling
    slots_of_gpu: Ints  # copies of one layer's experts, at least 1
    speeds: Floats  # work per second of each GPU; only ratios matter

    @classmethod
    def even(cls, *, slots: int, gpus: int, nodes: int, speeds: Sequence[float] | None = None) -> "Layout":
        """The same number of slots on every GPU, and of GPUs on every node."""
        RuleError.raise_for(_even_violations(slots, gpus, nodes))
        return cls.of(
            node_of_gpu=[gpu * nodes // gpus for gpu in range(gpus)],
            slots_of_gpu=[slots // gpus] * gpus,
            speeds=speeds,
        )

    @classmethod
    def of(
        cls, *, node_of_gpu: Sequence[int], slots_of_gpu: Sequence[int], speeds: Sequence[float] | None = None
    ) -> "Layout":
        """Any counts, for GPUs with different memories and nodes of different sizes."""
        given = [1.0] * len(node_of_gpu) if speeds is None else list(speeds)
        RuleError.raise_for(_violations(node_of_gpu, slots_of_gpu, given))
        return cls(
            node_of_gpu=np.array(node_of_gpu, dtype=np.int64),
            slots_of_gpu=np.array(slots_of_gpu, dtype=np.int64),
            speeds=np.array(given, dtype=np.float64),
        )

    @property
    def gpus(self) -> int:
        return len(self.node_of_gpu)

    @property
    def nodes(self) -> int:
        return int(self.node_of_gpu[-1]) + 1

    @property
    def slots(self) -> int:
        return int(self.slots_of_gpu.sum())

    @property
    def is_even(self) -> bool:
        """Whether all GPUs have equal slots and all nodes equal GPUs, as engines require."""
        return len(set(self.slots_of_gpu.tolist())) == 1 and len(set(np.bincount(self.node_of_gpu).tolist())) == 1

    @cached_property
    def first_slot(self) -> Ints:
        """[GPUs + 1]: GPU g holds the slots from first_slot[g] up to first_slot[g + 1]."""
        return np.concatenate([[0], np.cumsum(self.slots_of_gpu)]).astype(np.int64)

    @cached_property
    def gpu_of_slot(self) -> Ints:
        """[slots]: the GPU of each slot."""
        return np.repeat(np.arange(self.gpus, dtype=np.int64), self.slots_of_gpu)

    @cached_property
    def node_of_slot(self) -> Ints:
        """[slots]: the node of each slot."""
        found: Ints = self.node_of_gpu[self.gpu_of_slot]
        return found

    @cached_property
    def shares(self) -> Floats:
        """[GPUs]: each GPU's part of the total speed, which is its even share of the load."""
        parts: Floats = self.speeds / self.speeds.sum()
        return parts

    @cached_property
    def arrays(self) -> LayoutArrays:
        return LayoutArrays(self.gpu_of_slot, self.node_of_gpu, self.first_slot, self.shares)


def _even_violations(slots: int, gpus: int, nodes: int) -> Iterator[Violation]:
    if not 1 <= gpus <= MAX_GPUS:
        yield ("gpus",), f"must be from 1 to {MAX_GPUS}, got {gpus}"
    elif not 1 <= nodes <= gpus or gpus % nodes:
        yield ("nodes",), f"must divide the number of GPUs ({gpus}), got {nodes}"
    if not 1 <= slots <= MAX_SLOTS:
        yield ("slots",), f"must be from 1 to {MAX_SLOTS}, got {slots}"
    elif 1 <= gpus <= MAX_GPUS and slots % gpus:
        below, above = slots // gpus * gpus, (slots // gpus + 1) * gpus
        nearest = f"{below} or {above}" if below else f"{above}"
        yield ("slots",), f"must be a multiple of the number of GPUs ({gpus}), got {slots}; nearest: {nearest}"


def _violations(
    node_of_gpu: Sequence[int], slots_of_gpu: Sequence[int], speeds: Sequence[float]
) -> Iterator[Violation]:
    gpus = len(node_of_gpu)
    if not 1 <= gpus <= MAX_GPUS:
        yield ("gpus",), f"must be from 1 to {MAX_GPUS}, got {gpus}"
        return
    steps = np.diff([0, *node_of_gpu])
    if node_of_gpu[0] != 0 or ((steps != 0) & (steps != 1)).any():
        yield ("nodes",), "GPUs must be numbered node by node, nodes from 0"
    if len(slots_of_gpu) != gpus:
        yield ("gpu_slots",), f"must be one number per GPU ({gpus}), got {len(slots_of_gpu)}"
    elif min(slots_of_gpu) < 1 or sum(slots_of_gpu) > MAX_SLOTS:
        yield ("gpu_slots",), f"must be at least 1 each and {MAX_SLOTS} together"
    if len(speeds) != gpus:
        yield ("gpu_speeds",), f"must be one number per GPU ({gpus}), got {len(speeds)}"
    elif not all(MIN_SPEED <= speed <= MAX_SPEED for speed in speeds):
        yield ("gpu_speeds",), f"must be from {MIN_SPEED:g} to {MAX_SPEED:g} each"


def slots_in(memory_bytes: float, *, experts: int, layers: int, expert_bytes: int) -> int:
    """Slots of each layer in this memory, at most one per expert."""
    return min(int(memory_bytes // (layers * expert_bytes)), experts)


def slots_within(
    memory_gb: Sequence[float], slots: int, *, experts: int, layers: int, expert_bytes: int
) -> tuple[int, ...]:
    """Slots of each GPU for a total of `slots`.  RuleError where memory does not hold them."""
    RuleError.raise_for(_memory_violations(memory_gb))
    capacity = [slots_in(gb * GIGABYTE, experts=experts, layers=layers, expert_bytes=expert_bytes) for gb in memory_gb]
    RuleError.raise_for(_capacity_violations(capacity, slots, layers * expert_bytes / GIGABYTE))
    return tuple(filled(capacity, slots))


def filled(capacity: Sequence[int], slots: int) -> list[int]:
    """A total of `slots`, as evenly as the limit of each GPU allows; earlier GPUs take the remainder."""
    found = [0] * len(capacity)
    while left := slots - sum(found):
        open_gpus = [gpu for gpu, most in enumerate(capacity) if found[gpu] < most]
        for gpu in open_gpus[: left if left < len(open_gpus) else None]:
            found[gpu] += min(max(left // len(open_gpus), 1), capacity[gpu] - found[gpu])
    return found


def _memory_violations(memory_gb: Sequence[float]) -> Iterator[Violation]:
    for gpu, gb in enumerate(memory_gb):
        if not 0 < gb <= MAX_GPU_GB:
            yield ("gpu_memory", gpu), f"must be above 0 and at most {MAX_GPU_GB} GB, got {gb:g}"


def _capacity_violations(capacity: Sequence[int], slots: int, slot_gb: float) -> Iterator[Violation]:
    small = [gpu for gpu, most in enumerate(capacity) if most < 1]
    if small:
        yield ("gpu_memory", small[0]), f"must hold one expert of each layer, {slot_gb:.3g} GB; {len(small)} do not"
        return
    if not len(capacity) <= slots <= min(sum(capacity), MAX_SLOTS):
        yield (
            ("slots",),
            f"must be from {len(capacity)} (one per GPU) to what memory holds ({sum(capacity)}), got {slots}",
        )
