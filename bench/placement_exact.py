"""What is proven about small cases: the local search beside the integer programs.

A few layers of each size, one program per layer under `LIMIT_S`.  `equal` counts layers where the search
(`placement.balance`, `placement.joint`) is within a millionth of the program's result, `proven` those with a known
optimum; `gap` is the maximum distance of the worst layer from its optimum.  The search's time is CPU time after
warm-up; the program's is wall time, because its limit is.
"""

import statistics
import time
from dataclasses import dataclass

import numpy as np

from bench.expert_loads import synthetic
from bench.harness import Row, processor_ms
from fleet.solvers import Limits, SolveStatus
from placement.arrays import Floats
from placement.exact import incumbent, solve_exact
from placement.imbalance import imbalance
from placement.layout import Layout

LIMIT_S = 5.0  # per layer
LAYERS = 4
REPEATS = 5
SAME = 2e-6
EIGHT = np.array([[600.0, 560, 120, 120, 20, 10, 10, 10]])  # the example of vLLM's FlashLB proposal


@dataclass(frozen=True, eq=False)
class Small:
    name: str
    tokens: Floats
    slots: int
    gpus: int


def run() -> list[Row]:
    return [*map(_row, _smalls())]


def _smalls() -> list[Small]:
    eight, many = synthetic("mixtral-8x7b").tokens[:LAYERS], synthetic("olmoe-1b-7b").tokens[:LAYERS]
    return [
        Small("published example", EIGHT, 16, 8),
        Small("8 experts", eight, 8, 4),
        Small("8 experts, half as many copies", eight, 12, 4),
        Small("8 experts, each twice", eight, 16, 8),
        Small("12 experts, a third more", many[:, :12].copy(), 16, 4),
        Small("16 experts", many[:, :16].copy(), 16, 4),
        Small("16 experts, 2 slots per GPU", many[:, :16].copy(), 20, 10),
        Small("32 experts", many[:, :32].copy(), 32, 4),
        Small("32 experts, a quarter more", many[:, :32].copy(), 40, 8),
        Small("64 experts, an eighth more", many, 72, 8),
    ]


def _row(small: Small) -> Row:
    layout = Layout.even(slots=small.slots, gpus=small.gpus, nodes=1)
    searched, search_ms = processor_ms(lambda: incumbent(small.tokens, layout=layout), repeats=REPEATS)
    found = imbalance(searched, small.tokens, layout=layout).per_layer
    layers, seconds = [], []
    for layer, tokens in enumerate(small.tokens):
        started_s = time.perf_counter()
        exact = solve_exact(
            tokens[None], layout=layout, limits=Limits(time_limit_s=LIMIT_S), start=searched[layer : layer + 1]
        )
        seconds.append(time.perf_counter() - started_s)
        layers.append(exact.layers[0])
    values = np.array([layer.value for layer in layers])
    return {
        "case": small.name,
        "experts": small.tokens.shape[1],
        "slots": small.slots,
        "gpus": small.gpus,
        "layers": len(small.tokens),
        "search_imbalance": float(found.mean()),
        "ilp_imbalance": float(values.mean()),
        "bound": float(np.mean([layer.bound for layer in layers])),
        "gap": max(layer.gap for layer in layers),
        "equal": int((found <= values * (1 + SAME)).sum()),
        "proven": sum(layer.status is SolveStatus.OPTIMAL for layer in layers),
        "search_ms": search_ms,
        "ilp_median_s": statistics.median(seconds),
    }
