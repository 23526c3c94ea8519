"""The load of each GPU after SGLang has loaded a map, and placements that make these loads even.

docs/explanation/placement/dispatch.md: SGLang 0.5.23 draws in whole numbers and with a fixed seed (`sglang_dispatch`),
so `engine_loads` is exact.  `balanced_for_sglang` assigns experts with several copies to nodes and
packs again without a change of draws (`rebalance`).

Draws continue from layer to layer, through dense layers too, for which the map holds `placement.validation.contiguous`
(placement.formats writes that).  `layers` are the rows' numbers in the whole model; without them it has no dense layer.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fleet.documents import RuleError, Violation
from placement.arrays import MAX_LAYERS, Floats, Ints
from placement.dispatch import Dispatch
from placement.imbalance import Imbalance, imbalance
from placement.layout import Layout
from placement.validation import check_slots, contiguous, copies

if TYPE_CHECKING:  # compiled code
    from placement.nearest.sglang_dispatch import Words

CEILING = 1.02  # mean imbalance under the average rule, which approximates other versions and seeds
PARTS = (1.0, 0.5)  # weight of the draws in the balanced loads; the rest are averages
FIRST_WORDS = 1 << 18  # four times as many while they do not suffice


def engine_choices(expert_of_slot: Ints, *, experts: int, layout: Layout, layers: Sequence[int] | None = None) -> Ints:
    """[layers, experts, GPUs]: the slot to which each GPU sends its tokens for an expert."""
    numbers = _checked(expert_of_slot, experts=experts, layout=layout, layers=layers)
    return _choices(_whole(expert_of_slot, experts, layout, numbers), experts, layout)[numbers]


def engine_loads(
    expert_of_slot: Ints, tokens: Floats, *, layout: Layout, layers: Sequence[int] | None = None
) -> Floats:
    """[layers, GPUs]: tokens that each GPU computes, when all GPUs send equally many for each expert."""
    chosen = engine_choices(expert_of_slot, experts=tokens.shape[1], layout=layout, layers=layers)
    weights = _weights(expert_of_slot, tokens, layout, chosen)
    loads: Floats = np.add.reduceat(weights, layout.first_slot[:-1], axis=1)
    return loads


def engine_imbalance(
    expert_of_slot: Ints, tokens: Floats, *, layout: Layout, layers: Sequence[int] | None = None
) -> Imbalance:
    """As `placement.imbalance`, with the engine's draws instead of their average."""
    loads = engine_loads(expert_of_slot, tokens, layout=layout, layers=layers)
    even = tokens.sum(axis=1, keepdims=True) * layout.shares
    return Imbalance((loads / even).max(axis=1))


def balanced_for_sglang(
    expert_of_slot: Ints, tokens: Floats, *, layout: Layout, layers: Sequence[int] | None = None
) -> Ints:
    """[layers, slots]: the same replica counts, placed so that the loads with the engine's draws are even.

    The mean is never worse than that of the given placement.  Where the average under the rule is then above `CEILING`,
    plans in between are made, and the one with the lowest maximum of both is returned.
    """
    from placement.nearest.rebalance import assign_nodes, rebalance  # noqa: PLC0415 - compiles on import

    experts = tokens.shape[1]
    numbers = _checked(expert_of_slot, experts=experts, layout=layout, layers=layers)
    rows, loads = _whole(expert_of_slot, experts, layout, numbers), _whole_tokens(tokens, numbers)
    rows = _enough(lambda drawn: assign_nodes(rows, loads, layout.arrays, drawn))
    drawn, average = _weights(rows, loads, layout, _choices(rows, experts, layout)), _average_weights(rows, loads)
    best, least = np.array(expert_of_slot), np.inf
    before = engine_imbalance(best, tokens, layout=layout, layers=layers).mean
    for part in PARTS:
        found = rebalance(loads, rows, part * drawn + (1 - part) * average, layout.arrays)[numbers]
        after = engine_imbalance(found, tokens, layout=layout, layers=layers).mean
        worse = max(after, imbalance(found, tokens, layout=layout, rule=Dispatch.NEAREST).mean)
        if after < before and worse < least:
            best, least = found, worse
        if least <= CEILING:
            break
    return best


def _average_weights(rows: Ints, tokens: Floats) -> Floats:
    """[layers, slots]: average tokens of each copy under the rule, for copies on different nodes."""
    found: Floats = np.take_along_axis(tokens / copies(rows, experts=tokens.shape[1]), rows, axis=1)
    return found


def _weights(rows: Ints, tokens: Floats, layout: Layout, chosen: Ints) -> Floats:
    """[layers, slots]: tokens of each copy, by the slots that the GPUs chose."""
    layers = len(rows)
    offset = (np.arange(layers) * layout.slots)[:, np.newaxis, np.newaxis]
    senders = np.bincount((chosen + offset).ravel(), minlength=layers * layout.slots).reshape(layers, layout.slots)
    weights: Floats = senders / layout.gpus * np.take_along_axis(tokens, rows, axis=1)
    return weights


def _choices(rows: Ints, experts: int, layout: Layout) -> Ints:
    from placement.nearest.sglang_dispatch import choose_slots  # noqa: PLC0415 - compiles on import

    return _enough(lambda drawn: choose_slots(rows, layout.arrays, experts, drawn))


def _enough(drawing: "Callable[[Words], Ints]") -> Ints:
    """The draws with as much generator output as they need."""
    from placement.nearest.sglang_dispatch import words  # noqa: PLC0415 - compiles on import

    count = FIRST_WORDS
    while (found := drawing(words(count))).flat[0] < 0:
        count *= 4
    return found


def _whole(expert_of_slot: Ints, experts: int, layout: Layout, numbers: Ints) -> Ints:
    """The map as the engine reads it, up to the last MoE layer: later rows change nothing."""
    rows = contiguous(layers=int(numbers[-1]) + 1, experts=experts, layout=layout)
    rows[numbers] = expert_of_slot
    return rows


def _whole_tokens(tokens: Floats, numbers: Ints) -> Floats:
    rows = np.zeros((int(numbers[-1]) + 1, tokens.shape[1]))
    rows[numbers] = tokens
    return rows


def _checked(expert_of_slot: Ints, *, experts: int, layout: Layout, layers: Sequence[int] | None) -> Ints:
    """The rows' numbers in the whole model."""
    numbers = np.arange(len(expert_of_slot)) if layers is None else np.array(layers, dtype=np.int64)
    RuleError.raise_for(_violations(layout, numbers, len(expert_of_slot)))
    check_slots(expert_of_slot, experts=experts, layout=layout)
    return numbers


def _violations(layout: Layout, numbers: Ints, rows: int) -> Iterator[Violation]:
    if not layout.is_even:
        yield ("layout",), "must have equal slots on every GPU and equal GPUs on every node, as SGLang has"
    if len(numbers) != rows or rows < 1:
        yield ("layers",), f"must be one number per row ({rows}), got {len(numbers)}"
    elif numbers[0] < 0 or numbers[-1] >= MAX_LAYERS or (np.diff(numbers) < 1).any():
        yield ("layers",), f"must rise from row to row, from 0 to {MAX_LAYERS - 1}"
