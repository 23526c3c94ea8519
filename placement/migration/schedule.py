"""The schedule of the moves: steps of each layer, and batches within the bandwidth that moves may use.

docs/explanation/placement/migration.md has the rules and the duration of a batch.  After each step the layer is a legal
placement, no less even than before.  A slot may be overwritten when its expert has another live copy and the new one is
not on that GPU yet: the layer stays complete at every instant (make before break).  Slots in a ring of dependencies, as
in an exchange of two single copies, change together: GPUs receive the copies beside the serving ones and switch at
once, which needs free memory.  Steps that would make the layer less even join the next ones, while the limit per step
allows.

Steps of a layer share a batch where that takes no longer than the longest of them alone and every expert has a live
copy in unchanged slots.  Each copy comes from a live one, of the same node if there is one, of the GPU with least to
send.  The next batch is the layer's next step with the highest gain per second.  It includes later steps of its layer
while these raise the average, so that a poor first step does not hide a good second one.
"""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fleet.documents import RuleError
from placement.arrays import Floats, Ints
from placement.dispatch import Dispatch
from placement.imbalance import imbalance
from placement.layout import Layout
from placement.migration.moves import loads_copy

WORSE = 1e-12
GB = 1e9


@dataclass(frozen=True, slots=True)
class Links:
    """The bandwidth of a GPU and a node, each way, and the share that moves may use."""

    gpu_gb_per_s: float
    node_gb_per_s: float  # all uplinks of a node together
    share: float = 0.25  # of each link; the rest serves

    def __post_init__(self) -> None:
        RuleError.raise_for(
            ((name,), f"must be above 0, got {getattr(self, name):g}")
            for name in ("gpu_gb_per_s", "node_gb_per_s")
            if not getattr(self, name) > 0
        )
        if not 0 < self.share <= 1:
            raise RuleError([(("share",), f"must be above 0 and at most 1, got {self.share:g}")])


@dataclass(frozen=True, slots=True)
class Batch:
    """Copies of one layer that move together and are activated at its end."""

    layer: int  # row of the placement
    start_s: float
    end_s: float
    slots: tuple[int, ...]  # that change
    sources: tuple[int, ...]  # the source GPU of each; its own where the copy only changes slot
    beside: bool  # needs memory beside the serving copies: see `move_order`
    mean_imbalance: float  # over all layers, after the batch


@dataclass(frozen=True, slots=True)
class Schedule:
    batches: tuple[Batch, ...]
    moved_bytes: float

    @property
    def duration_s(self) -> float:
        return self.batches[-1].end_s if self.batches else 0.0


@dataclass(frozen=True, slots=True)
class Step:
    """Slots of one layer that change together."""

    slots: tuple[int, ...]
    copies: tuple[int, ...]  # slots that receive an expert from another GPU
    beside: bool  # the new copies need memory beside the old ones
    imbalance: float  # of the layer, after the step


@dataclass(frozen=True, slots=True)
class _Timed:
    step: Step
    sources: tuple[int, ...]
    seconds: float
    gain: float  # imbalance that the layer loses
    copies: int


def schedule_moves(
    before: Ints,
    after: Ints,
    tokens: Floats,
    *,
    layout: Layout,
    rule: Dispatch = Dispatch.EQUAL,
    expert_bytes: float,
    links: Links,
    copies_per_batch: int = 8,
) -> Schedule:
    """From one placement [layers, slots] to another whose remaining copies keep their slots."""
    if not expert_bytes > 0:
        raise RuleError([(("expert_bytes",), f"must be above 0, got {expert_bytes:g}")])
    if copies_per_batch < 1:
        raise RuleError([(("copies_per_batch",), f"must be at least 1, got {copies_per_batch}")])
    even = imbalance(before, tokens, layout=layout, rule=rule).per_layer
    waiting = []
    for layer in range(len(before)):
        steps = steps_of_layer(
            before[layer], after[layer], tokens[layer], layout=layout, rule=rule, max_copies=copies_per_batch
        )
        waiting.append(
            _timed(
                steps,
                before[layer],
                after[layer],
                float(even[layer]),
                layout=layout,
                expert_bytes=expert_bytes,
                links=links,
                max_copies=copies_per_batch,
            )
        )
    return _in_order(waiting, even.copy(), expert_bytes)


def _in_order(waiting: list[list[_Timed]], even: Floats, expert_bytes: float) -> Schedule:
    batches: list[Batch] = []
    clock_s, copies = 0.0, 0
    while any(waiting):
        layer = max((at for at, steps in enumerate(waiting) if steps), key=lambda at: (_rate(waiting[at]), -at))
        timed = waiting[layer].pop(0)
        even[layer] = timed.step.imbalance
        end_s = clock_s + timed.seconds
        step, mean = timed.step, float(even.mean())
        batches.append(Batch(layer, clock_s, end_s, step.slots, timed.sources, step.beside, mean))
        clock_s, copies = end_s, copies + timed.copies
    return Schedule(tuple(batches), copies * expert_bytes)


def _rate(steps: list[_Timed]) -> float:
    """The best gain per second over the next steps, from one to all; steps without copies first."""
    gains, seconds = np.cumsum([step.gain for step in steps]), np.cumsum([step.seconds for step in steps])
    return float((gains / np.maximum(seconds, 1e-12)).max())


def _timed(
    steps: list[Step],
    before: Ints,
    after: Ints,
    even: float,
    *,
    layout: Layout,
    expert_bytes: float,
    links: Links,
    max_copies: int,
) -> list[_Timed]:
    def of(step: Step) -> _Timed:
        sources, sent = _sources(step, row, after, layout)
        seconds = _seconds(sent, expert_bytes, links)
        return _Timed(step, sources, seconds, even - step.imbalance, len(step.copies))

    row, timed, left = before.copy(), [], deque(steps)
    while left:
        batch = of(left.popleft())
        while left and (both := _joined(batch.step, left[0], row, max_copies)) is not None:
            together = of(both)
            if together.seconds > max(batch.seconds, of(left[0]).seconds):
                break
            batch = together
            left.popleft()
        timed.append(batch)
        slots = list(batch.step.slots)
        row[slots] = after[slots]
        even = batch.step.imbalance
    return timed


def _joined(step: Step, following: Step, row: Ints, max_copies: int) -> Step | None:
    """Both steps at once, or None where not allowed."""
    slots, copies = step.slots + following.slots, step.copies + following.copies
    if step.beside or following.beside or len(copies) > max_copies or needs_memory(slots, row):
        return None
    return Step(slots, copies, beside=False, imbalance=following.imbalance)


def _sources(step: Step, row: Ints, after: Ints, layout: Layout) -> tuple[tuple[int, ...], Ints]:
    """The source of each copy, and copies over links: [4, GPUs], GPU out and in, node out and in."""
    sent = np.zeros((4, layout.gpus), dtype=np.int64)
    sources = []
    stays = np.ones(len(row), dtype=np.bool_)
    stays[[] if step.beside else list(step.slots)] = False
    for slot in step.slots:
        gpu = int(layout.gpu_of_slot[slot])
        if slot not in step.copies:
            sources.append(gpu)
            continue
        node = layout.node_of_gpu[gpu]
        holders = layout.gpu_of_slot[(row == after[slot]) & stays]
        far = layout.node_of_gpu[holders] != node
        source = int(holders[np.lexsort((holders, sent[0, holders], far))[0]])
        sent[0, source] += 1
        sent[1, gpu] += 1
        if layout.node_of_gpu[source] != node:
            sent[2, layout.node_of_gpu[source]] += 1
            sent[3, node] += 1
        sources.append(source)
    return tuple(sources), sent


def _seconds(sent: Ints, expert_bytes: float, links: Links) -> float:
    slowest = max(sent[:2].max() / links.gpu_gb_per_s, sent[2:].max() / links.node_gb_per_s)
    return float(slowest * expert_bytes / GB / links.share)


def steps_of_layer(
    before: Ints, after: Ints, tokens: Floats, *, layout: Layout, rule: Dispatch = Dispatch.EQUAL, max_copies: int
) -> list[Step]:
    """From row to row [slots] under loads [experts]; a ring longer than `max_copies` is still one step."""
    row, at = before.copy(), _even(before, tokens, layout, rule)
    loads = set(np.flatnonzero(loads_copy(before[np.newaxis], after[np.newaxis], layout=layout)[0]).tolist())
    left = set(np.flatnonzero(before != after).tolist())
    steps = []
    while left:
        joined: list[int] = []
        start, reached = row.copy(), np.inf
        while left and reached > at + WORSE:
            group, value = _best(row, after, left, tokens, layout=layout, rule=rule)
            if joined and len(loads & {*joined, *group}) > max_copies:
                break
            joined += group
            left -= set(group)
            row[list(group)] = after[list(group)]
            reached = value
        copies = tuple(slot for slot in joined if slot in loads)
        steps.append(Step(tuple(joined), copies, needs_memory(joined, start), reached))
        at = reached
    return steps


def needs_memory(joined: Sequence[int], row: Ints) -> bool:
    """Whether the slots hold all live copies of an expert, so that none may leave before the new one arrives."""
    rest = np.delete(row, joined)
    return not np.isin(row[list(joined)], rest).all()


def _best(
    row: Ints, after: Ints, left: set[int], tokens: Floats, *, layout: Layout, rule: Dispatch
) -> tuple[tuple[int, ...], float]:
    """The group of slots that leaves the layer most even, and its imbalance; slots that may change alone first."""
    alone = [slot for slot in sorted(left) if _may_go(row, after, slot, layout)]
    groups: list[tuple[int, ...]] = [(slot,) for slot in alone] or list(_rings(row, after, left, layout))
    trials = np.repeat(row[np.newaxis], len(groups), axis=0)
    for trial, group in zip(trials, groups, strict=True):
        trial[list(group)] = after[list(group)]
    weights = np.repeat(tokens[np.newaxis], len(groups), axis=0)
    values = imbalance(trials, weights, layout=layout, rule=rule).per_layer
    best = int(values.argmin())
    return groups[best], float(values[best])


def _may_go(row: Ints, after: Ints, slot: int, layout: Layout) -> bool:
    gpu = layout.gpu_of_slot[slot]
    here = row[layout.first_slot[gpu] : layout.first_slot[gpu + 1]]
    return bool((row == row[slot]).sum() > 1 and after[slot] not in here)


def _rings(row: Ints, after: Ints, left: set[int], layout: Layout) -> Iterator[tuple[int, ...]]:
    """For each remaining slot, the slots that must change with it for a complete layer without duplicates."""
    found = set()
    for slot in sorted(left):
        group = _closed([slot], row, after, left, layout)
        if group not in found:
            found.add(group)
            yield group


def _closed(group: list[int], row: Ints, after: Ints, left: set[int], layout: Layout) -> tuple[int, ...]:
    """Add slots until the group may change."""
    while True:
        trial = row.copy()
        trial[group] = after[group]
        more = _missing_or_twin(trial, row, after, left - set(group), layout=layout, group=group)
        if more is None:
            return tuple(sorted(group))
        group = [*group, more]


def _missing_or_twin(
    trial: Ints, row: Ints, after: Ints, others: Iterable[int], *, layout: Layout, group: Sequence[int]
) -> int | None:
    """A slot whose change restores an expert that the group lost, or removes one that it duplicated."""
    rest = sorted(others)
    for slot in group:
        if not (trial == row[slot]).any():
            return next(other for other in rest if after[other] == row[slot])
        gpu = layout.gpu_of_slot[slot]
        near = range(layout.first_slot[gpu], layout.first_slot[gpu + 1])
        if Counter(trial[list(near)].tolist())[int(trial[slot])] > 1:
            return next(other for other in rest if other in near and row[other] == trial[slot])
    return None


def _even(row: Ints, tokens: Floats, layout: Layout, rule: Dispatch) -> float:
    return float(imbalance(row[np.newaxis], tokens[np.newaxis], layout=layout, rule=rule).per_layer[0])
