"""Imbalance weighted by speed if half the GPUs are half as fast: this planner, and EPLB, which knows no speeds.

Slow and fast GPUs alternate, or differ by node.  Slots are equal first, then as many as memory allows: slow GPUs with
two thirds of the fast GPUs' slots.  EPLB needs equal slots.  `bound` is the proven lower bound of the layers' mean.
"""

import time
from collections.abc import Iterator
from typing import Any

from bench.eplb import eplb_global
from bench.expert_loads import named
from placement.balance import balanced
from placement.bounds import lower_bound
from placement.imbalance import imbalance
from placement.layout import Layout

LOADS = ("decode_in1000out1000", "prefill_in1024", "prefill_in4096")
GPUS, NODES = 32, 4
REPEATS = 3


def run() -> list[dict[str, Any]]:
    return [_row(name, kind, layout) for name in LOADS for kind, layout in _layouts()]


def _layouts() -> Iterator[tuple[str, Layout]]:
    node_of_gpu = [gpu * NODES // GPUS for gpu in range(GPUS)]
    by_turns = [1.0 if gpu % 2 else 0.5 for gpu in range(GPUS)]
    by_node = [1.0 if node % 2 else 0.5 for node in node_of_gpu]
    for kind, speeds in (("by turns", by_turns), ("by node", by_node)):
        yield f"{kind}, 9 slots each", Layout.even(slots=288, gpus=GPUS, nodes=NODES, speeds=speeds)
        slots = [12 if speed == 1.0 else 8 for speed in speeds]
        yield f"{kind}, 12 and 8 slots", Layout.of(node_of_gpu=node_of_gpu, slots_of_gpu=slots, speeds=speeds)


def _row(name: str, kind: str, layout: Layout) -> dict[str, Any]:
    case = named(name)
    placed = balanced(case.tokens, layout=layout)
    seconds = []
    for _ in range(REPEATS):
        started_s = time.process_time()
        balanced(case.tokens, layout=layout)
        seconds.append(time.process_time() - started_s)
    found = imbalance(placed, case.tokens, layout=layout)
    theirs = None
    if layout.is_even:
        plan = eplb_global(case.tokens, slots=layout.slots, gpus=layout.gpus)
        theirs = imbalance(plan, case.tokens, layout=layout).mean
    return {
        "loads": f"{name} ({case.source})",
        "half the GPUs at half speed": kind,
        "imbalance": found.mean,
        "worst_layer": found.max,
        "bound": float(lower_bound(case.tokens, layout=layout).mean()),
        "eplb_imbalance": theirs,
        "cpu_ms": 1000 * sorted(seconds)[REPEATS // 2],
    }
