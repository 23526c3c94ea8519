"""Few slots per GPU: replica counts and packing together, beside EPLB's policies and what is proven unreachable.

`bound` is `placement.bounds.lower_bound`; `hottest` is the bound by the hottest copies alone.  Imbalances are means
over the layers for the even split; CPU time is the median of `REPEATS` runs on the whole model, compiled before.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.eplb import eplb, eplb_global
from bench.expert_loads import GROUPS, named, synthetic
from placement.arrays import Floats
from placement.balance import balanced
from placement.bounds import lower_bound
from placement.bounds.certified import quick_bound
from placement.imbalance import imbalance
from placement.joint import joint_balanced
from placement.layout import Layout
from placement.slots import check_slots

REPEATS = 3
TOY = np.array([[600.0, 560, 120, 120, 20, 10, 10, 10]])  # the example that FlashLB is explained with


@dataclass(frozen=True, eq=False)
class Few:
    """One model's loads on one layout."""

    name: str
    tokens: Floats
    slots: int
    gpus: int
    nodes: int
    groups: int = 1


def run() -> list[dict[str, Any]]:
    """One row per layout."""
    layout = Layout.even(slots=16, gpus=8, nodes=1)
    for speeds in (None, [2.0] + [1.0] * 7):  # compiles both ways
        joint_balanced(TOY, layout=Layout.even(slots=16, gpus=8, nodes=1, speeds=speeds))
    lower_bound(TOY, layout=layout)
    return [_row(case) for case in _cases()]


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


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """The answer and the median CPU time."""
    answer, spent_s = None, []
    for _ in range(REPEATS):
        started_s = time.process_time()
        answer = work()
        spent_s.append(time.process_time() - started_s)
    return answer, 1000 * statistics.median(spent_s)
