"""Few slots per GPU: replica counts and packing together, beside EPLB's policies and what is proven unreachable.

`bound` is `placement.bounds.lower_bound`; `hottest` is the bound by the hottest copies alone.  Imbalances are means
over the layers for the even split; CPU time is the median of `REPEATS` runs on the whole model, compiled before.
The last rows show what else helps where two slots per GPU do not (`way`): uneven slots, other ways to share an
expert's tokens, more slots; `extra_gb_per_gpu` is the weights that the fullest GPU holds beyond two slots per layer.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.eplb import eplb, eplb_global
from bench.expert_loads import GROUPS, named, synthetic
from bench.optimal_dispatch import best_split, planned_for_best_split
from bench.uneven_layout import uneven_layout, with_givers
from placement.arrays import Floats
from placement.balance import balanced
from placement.bounds import lower_bound
from placement.bounds.lower_bound import quick_bound
from placement.dispatch import Dispatch
from placement.imbalance import imbalance
from placement.joint import joint_balanced
from placement.layout import Layout
from placement.nearest import balanced_nearest
from placement.validation import check_slots

REPEATS = 3
EXPERT_GB = 3 * 7168 * 2048 / 1e9  # of DeepSeek-V3, one byte per weight
GIVERS = (4, 8, 12, 16, 20, 24, 32)  # GPUs that give a slot, a choice of each layer
TOY = np.array([[600.0, 560, 120, 120, 20, 10, 10, 10]])  # the example that FlashLB is explained with


@dataclass(frozen=True, eq=False)
class Few:
    name: str
    tokens: Floats
    slots: int
    gpus: int
    nodes: int
    groups: int = 1


def run() -> list[dict[str, Any]]:
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


def _row(case: Few) -> dict[str, Any]:
    layout = Layout.even(slots=case.slots, gpus=case.gpus, nodes=case.nodes)
    ours, cpu_ms = _timed(lambda: joint_balanced(case.tokens, layout=layout))
    bounds, bound_ms = _timed(lambda: lower_bound(case.tokens, layout=layout))
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


def _other_ways(name: str) -> list[dict[str, Any]]:
    """From the same loads on 144 GPUs: what each way leaves."""
    tokens, even = named(name).tokens, Layout.even(slots=288, gpus=144, nodes=18)
    dealt, deal_ms = _timed(lambda: uneven_layout(tokens, layout=even), repeats=1)
    joint = joint_balanced(tokens, layout=even)
    any_layer = np.min([_per_layer(tokens, with_givers(even, givers)) for givers in GIVERS], axis=0)
    nearest = imbalance(balanced_nearest(tokens, layout=even), tokens, layout=even, rule=Dispatch.NEAREST).mean
    return [
        _way("two slots each, even split", name, even, tokens),
        {**_way("uneven slots", name, dealt, tokens), "deal_cpu_ms": deal_ms},
        _row_of("uneven slots, each layer its own", name, even, float(any_layer.mean())),
        _row_of("best split, same placement", name, even, best_split(joint, tokens, layout=even)),
        _row_of("best split, planned for it", name, even, planned_for_best_split(tokens, gpus=even.gpus, slots=288)),
        _row_of("nearest rule, planned for it", name, even, nearest),
        *(_way("more slots, uneven", name, _some_of_three(even, more), tokens) for more in (8, 16, 32)),
        _way("three slots each", name, Layout.even(slots=432, gpus=144, nodes=18), tokens),
    ]


def _some_of_three(even: Layout, more: int) -> Layout:
    dealt = with_givers(even, 16)
    slots = dealt.slots_of_gpu.copy()
    slots[np.flatnonzero(slots == 2)[:: (slots == 2).sum() // more][:more]] = 3
    return Layout.of(node_of_gpu=even.node_of_gpu.tolist(), slots_of_gpu=slots.tolist())


def _way(way: str, name: str, layout: Layout, tokens: Floats) -> dict[str, Any]:
    found, cpu_ms = _timed(lambda: _per_layer(tokens, layout), repeats=1)
    bound = float(lower_bound(tokens, layout=layout).mean())
    return {**_row_of(way, name, layout, float(found.mean())), "bound": bound, "joint_cpu_ms": cpu_ms}


def _row_of(way: str, name: str, layout: Layout, reached: float) -> dict[str, Any]:
    slots = np.bincount(layout.slots_of_gpu, minlength=4)
    most = int(layout.slots_of_gpu.max())
    return {
        "loads": name,
        "slots": layout.slots,
        "gpus": layout.gpus,
        "way": way,
        "joint": reached,
        "gpus_of_one_slot": int(slots[1]),
        "gpus_of_three_slots": int(slots[3]),
        "extra_gb_per_gpu": (most - 2) * named(name).tokens.shape[0] * EXPERT_GB,
    }


def _per_layer(tokens: Floats, layout: Layout) -> Floats:
    placed = joint_balanced(tokens, layout=layout)
    check_slots(placed, experts=tokens.shape[1], layout=layout)
    return imbalance(placed, tokens, layout=layout).per_layer


def _timed(work: Callable[[], Any], *, repeats: int = REPEATS) -> tuple[Any, float]:
    answer, spent_s = None, []
    for _ in range(repeats):
        started_s = time.process_time()
        answer = work()
        spent_s.append(time.process_time() - started_s)
    return answer, 1000 * statistics.median(spent_s)
