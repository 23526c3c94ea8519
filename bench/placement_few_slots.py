"""Few slots per GPU: replica counts and packing together, beside EPLB's policies and what is proven unreachable.

Uneven slots: with two slots on each GPU even the hottest copy needs company.  A GPU of one slot gives it room, and cold
experts lie three to a GPU instead.  How many GPUs give one is searched for the whole model, as a layout is one for all
layers.  Best split: what a dispatcher that may share an expert's tokens among its copies in any way could reach, as
LPLB and SGLang's `lp` try batch by batch; here with the loads known.

`bound` is `placement.bounds.lower_bound`; `hottest` is the bound by the hottest copies alone.  Imbalances are means
over the layers for the even split; CPU time is the median of `REPEATS` runs on the whole model, compiled before.
The last rows show what else helps where two slots per GPU do not (`way`): uneven slots, other ways to share an
expert's tokens, more slots; `extra_gb_per_gpu` is the weights that the fullest GPU holds beyond two slots per layer.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bench.eplb import eplb, eplb_global
from bench.expert_loads import GROUPS, named, synthetic
from bench.harness import Row, processor_ms
from placement.arrays import Floats, Ints
from placement.balance import balanced
from placement.bounds import lower_bound
from placement.bounds.lower_bound import greedy_counts, quick_bound
from placement.imbalance import imbalance
from placement.joint import joint_balanced
from placement.layout import Layout
from placement.validation import check_slots

REPEATS = 3
HALVINGS = 8  # of the first search, from half of the GPUs giving a slot down
EXPERT_GB = 3 * 7168 * 2048 / 1e9  # of DeepSeek-V3, one byte per weight
TOY = np.array([[600.0, 560, 120, 120, 20, 10, 10, 10]])  # the example that FlashLB is explained with


@dataclass(frozen=True, eq=False)
class Few:
    name: str
    tokens: Floats
    slots: int
    gpus: int
    nodes: int
    groups: int = 1


def run() -> list[Row]:
    layout = Layout.even(slots=16, gpus=8, nodes=1)
    for speeds in (None, [2.0] + [1.0] * 7):  # compiles both ways
        joint_balanced(TOY, layout=Layout.even(slots=16, gpus=8, nodes=1, speeds=speeds))
    lower_bound(TOY, layout=layout)
    return [_row(case) for case in _cases()] + _other_ways("decode_in2000out100")


def _cases() -> list[Few]:
    recorded = [
        Few(name, named(name).tokens, slots, gpus, nodes, GROUPS)
        for name, slots, gpus, nodes in (
            ("decode_in2000out100", 288, 144, 18),
            ("decode_in1800out100", 288, 144, 18),
            ("decode_in1000out1000", 288, 144, 18),
            ("decode_in500out1500", 288, 144, 18),
            ("prefill_in2048", 320, 160, 20),
            ("decode_in2000out100", 432, 144, 18),
            ("decode_in2000out100", 288, 96, 12),
            ("prefill_in2048", 384, 128, 16),
        )
    ]
    mixtral = synthetic("mixtral-8x7b").tokens
    return [Few("eight experts", TOY, 16, 8, 1), Few("mixtral-8x7b", mixtral, 16, 8, 1), *recorded]


def _row(case: Few) -> Row:
    layout = Layout.even(slots=case.slots, gpus=case.gpus, nodes=case.nodes)
    ours, cpu_ms = processor_ms(lambda: joint_balanced(case.tokens, layout=layout), repeats=REPEATS)
    bounds, bound_ms = processor_ms(lambda: lower_bound(case.tokens, layout=layout), repeats=REPEATS)
    check_slots(ours, experts=case.tokens.shape[1], layout=layout)
    found = imbalance(ours, case.tokens, layout=layout)
    grouped = eplb(case.tokens, slots=case.slots, groups=case.groups, nodes=case.nodes, gpus=case.gpus)
    published = imbalance(eplb_global(case.tokens, slots=case.slots, gpus=case.gpus), case.tokens, layout=layout)
    return {
        "loads": case.name,
        "slots": case.slots,
        "gpus": case.gpus,
        "eplb_hierarchical": imbalance(grouped, case.tokens, layout=layout).mean,
        "eplb_global": published.mean,
        "base": imbalance(balanced(case.tokens, layout=layout), case.tokens, layout=layout).mean,
        "joint": found.mean,
        "bound": float(bounds.mean()),
        "hottest": float(quick_bound(case.tokens, layout=layout).mean()),
        "gap_mean": float((found.per_layer - bounds).mean()),
        "gap_worst": float((found.per_layer - bounds).max()),
        "layers_worse_than_eplb": int((found.per_layer > published.per_layer + 1e-9).sum()),
        "joint_cpu_ms": cpu_ms,
        "bound_cpu_ms": bound_ms,
    }


def _other_ways(name: str) -> list[Row]:
    """From the same loads on 144 GPUs: what each way leaves."""
    tokens, even = named(name).tokens, Layout.even(slots=288, gpus=144, nodes=18)
    dealt = uneven_layout(tokens, layout=even)
    return [
        _way("two slots each, even split", name, even, tokens),
        _way("uneven slots", name, dealt, tokens),
        _row_of("best split, planned for it", name, even, planned_for_best_split(tokens, gpus=even.gpus, slots=288)),
        _way("more slots, uneven", name, _some_of_three(even, 16), tokens),
        _way("three slots each", name, Layout.even(slots=432, gpus=144, nodes=18), tokens),
    ]


def _some_of_three(even: Layout, more: int) -> Layout:
    dealt = with_givers(even, 16)
    slots = dealt.slots_of_gpu.copy()
    slots[np.flatnonzero(slots == 2)[:: (slots == 2).sum() // more][:more]] = 3
    return Layout.of(node_of_gpu=even.node_of_gpu.tolist(), slots_of_gpu=slots.tolist())


def _way(way: str, name: str, layout: Layout, tokens: Floats) -> Row:
    bound = float(lower_bound(tokens, layout=layout).mean())
    return {**_row_of(way, name, layout, float(_per_layer(tokens, layout).mean())), "bound": bound}


def _row_of(way: str, name: str, layout: Layout, reached: float) -> Row:
    slots = np.bincount(layout.slots_of_gpu, minlength=4)
    most = int(layout.slots_of_gpu.max())
    return {
        "loads": name,
        "slots": layout.slots,
        "gpus": layout.gpus,
        "method": way,
        "joint": reached,
        "gpus_of_one_slot": int(slots[1]),
        "gpus_of_three_slots": int(slots[3]),
        "extra_gb_per_gpu": (most - 2) * named(name).tokens.shape[0] * EXPERT_GB,
    }


def _per_layer(tokens: Floats, layout: Layout) -> Floats:
    placed = joint_balanced(tokens, layout=layout)
    check_slots(placed, experts=tokens.shape[1], layout=layout)
    return imbalance(placed, tokens, layout=layout).per_layer


def uneven_layout(tokens: Floats, *, layout: Layout) -> Layout:
    """As many slots in all, for GPUs of one speed with equally many: the layout on which loads can lie evenest."""

    def reached(givers: int) -> float:
        dealt = with_givers(layout, givers)
        return imbalance(balanced(tokens, layout=dealt), tokens, layout=dealt).mean

    return with_givers(layout, _least(reached, layout.gpus // 2))


def with_givers(layout: Layout, givers: int) -> Layout:
    """As many GPUs with one slot fewer and with one more, spread over the nodes; the first of a node give."""
    within = np.arange(layout.gpus) - np.searchsorted(layout.node_of_gpu, layout.node_of_gpu)
    order = np.lexsort((layout.node_of_gpu, within))  # the first of each node, then the second ones
    slots: Ints = layout.slots_of_gpu.copy()
    slots[order[:givers]] -= 1
    slots[order[layout.gpus - givers :]] += 1
    return Layout.of(
        node_of_gpu=layout.node_of_gpu.tolist(), slots_of_gpu=slots.tolist(), speeds=layout.speeds.tolist()
    )


def _least(cost: Callable[[int], float], most: int) -> int:
    """Where a cost from 0 to `most` is least: halvings first, then ever smaller steps about the best."""
    tried = {at: cost(at) for at in sorted({0, *(most >> halvings for halvings in range(HALVINGS))})}
    step = max(1, _best(tried) // 2)
    while step:
        best = _best(tried)
        for at in (best - step, best + step):
            if 0 <= at <= most and at not in tried:
                tried[at] = cost(at)
        if _best(tried) == best:
            step //= 2
    return _best(tried)


def _best(tried: dict[int, float]) -> int:
    return min(tried, key=lambda at: (tried[at], at))


def planned_for_best_split(tokens: Floats, *, slots: int, gpus: int) -> float:
    """The same mean for two slots per GPU, planned for free shares.

    The c GPUs of an expert of c copies act as one, c times as fast, with room for c others and the expert once: shares
    even them out.  So single copies are packed on such GPUs and the rest.
    """
    weights = tokens / tokens.sum(axis=1, keepdims=True) * gpus
    counts = greedy_counts(weights, slots=slots, max_copies=gpus)
    return float(np.mean([_packed(*layer, gpus) for layer in zip(tokens, counts, strict=True)]))


def _packed(tokens: Floats, counts: Ints, gpus: int) -> float:
    several = np.sort(counts[counts > 1])
    speeds = np.concatenate([several, np.ones(gpus - several.sum(), dtype=np.int64)])
    layout = Layout.of(
        node_of_gpu=[0] * len(speeds), slots_of_gpu=(speeds + 1).tolist(), speeds=speeds.astype(float).tolist()
    )
    rows = tokens[np.newaxis]
    return imbalance(balanced(rows, layout=layout), rows, layout=layout).mean
