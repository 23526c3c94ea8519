"""The slots that fit each GPU: with M_g bytes for experts and L MoE layers, floor(M_g / (L expert_bytes)).

Slots are distributed as evenly as this limit allows: every GPU gets its even part, and the excess of smaller GPUs goes
to the others.
"""

from collections.abc import Iterator, Sequence

from fleet.documents import RuleError, Violation
from placement.arrays import MAX_SLOTS

MAX_EXPERT_BYTES = 10**12
MAX_GPU_GB = 10_000
GIGABYTE = 10**9


def slots_in(memory_bytes: float, *, experts: int, layers: int, expert_bytes: int) -> int:
    """Slots of each layer in this memory, at most one per expert."""
    return min(int(memory_bytes // (layers * expert_bytes)), experts)


def slots_within(
    memory_gb: Sequence[float], slots: int, *, experts: int, layers: int, expert_bytes: int
) -> tuple[int, ...]:
    """Slots of each GPU for a total of `slots`.  RuleError where memory does not hold them."""
    RuleError.raise_for(_violations(memory_gb))
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


def _violations(memory_gb: Sequence[float]) -> Iterator[Violation]:
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
