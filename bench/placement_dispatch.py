"""Plans judged by who really gets the tokens: under equal split, SGLang's rule `nearest`, and its table as drawn.

Per case: a plan made for equal split (ours) and EPLB's global policy, each under an equal split and under the rule;
our plan against the rule; and what SGLang 0.5.23 makes of our maps, GPU by GPU (`placement.nearest.sglang_model`),
before and after
`evened_for_engine`.  `first` and `uniform` read the rule otherwise: a GPU without a copy of its own always takes the
first on its node, or any on its node alike; plans without two copies of an expert on a node come out the same.
`shared` is what all GPUs make of it when they draw together, as after a rebalance.  Recorded loads start at layer 3 of
61.  Imbalances are means over layers, unless they say `worst`.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.eplb import eplb_global
from bench.expert_loads import DENSE_LAYERS, Case, named
from placement.arrays import Floats, Ints
from placement.balance import balanced
from placement.dispatch import Dispatch
from placement.imbalance import imbalance
from placement.layout import Layout
from placement.nearest import Draws, balanced_for_sglang, balanced_nearest, engine_imbalance

REPEATS = 5
SHAPES = (
    ("decode_in2000out100", 288, 32, 4),
    ("prefill_in4096", 288, 32, 4),
    ("decode_in2000out100", 288, 72, 9),
    ("prefill_in4096", 288, 72, 9),
    ("decode_in2000out100", 320, 64, 8),
    ("prefill_in4096", 320, 64, 8),
)


Bools = npt.NDArray[np.bool_]  # [GPUs, copies]
Reading = Callable[[Ints, Layout], Floats]  # slots of one expert -> the share of each


def first_on_node(slots: Ints, layout: Layout) -> Floats:
    """The copy on the GPU, else the first on its node, else any."""
    beside = _beside(slots, layout)
    return _shares(slots, layout, beside & (beside.cumsum(axis=1) == 1))


def any_on_node(slots: Ints, layout: Layout) -> Floats:
    """The copy on the GPU, else any on its node, else any."""
    return _shares(slots, layout, _beside(slots, layout))


def _beside(slots: Ints, layout: Layout) -> Bools:
    found: Bools = layout.node_of_slot[slots] == layout.node_of_gpu[:, np.newaxis]
    return found


def _shares(slots: Ints, layout: Layout, beside: Bools) -> Floats:
    own = layout.gpu_of_slot[slots] == np.arange(layout.gpus)[:, np.newaxis]
    taken = np.where(own.any(axis=1, keepdims=True), own, beside)
    taken |= ~taken.any(axis=1, keepdims=True)
    shares: Floats = (taken / taken.sum(axis=1, keepdims=True)).mean(axis=0)
    return shares


@dataclass(frozen=True)
class Judged:
    tokens: Floats
    layout: Layout
    layers: tuple[int, ...]

    def by(self, plan: Ints, rule: Dispatch) -> float:
        return imbalance(plan, self.tokens, layout=self.layout, rule=rule).mean

    def worst(self, plan: Ints) -> float:
        return imbalance(plan, self.tokens, layout=self.layout, rule=Dispatch.NEAREST).max

    def read(self, plan: Ints, reading: Reading) -> float:
        loads = np.zeros((len(plan), self.layout.gpus))
        for layer, row in enumerate(plan):
            for expert, tokens in enumerate(self.tokens[layer]):
                slots = np.flatnonzero(row == expert)
                np.add.at(loads[layer], self.layout.gpu_of_slot[slots], tokens * reading(slots, self.layout))
        even = self.tokens.sum(axis=1, keepdims=True) * self.layout.shares
        return float((loads / even).max(axis=1).mean())

    def engine(self, plan: Ints, draws: Draws = Draws.OWN) -> float:
        return engine_imbalance(plan, self.tokens, layout=self.layout, layers=self.layers, draws=draws).mean


def run() -> list[dict[str, Any]]:
    return [_row(named(name), Layout.even(slots=slots, gpus=gpus, nodes=nodes)) for name, slots, gpus, nodes in SHAPES]


def _row(case: Case, layout: Layout) -> dict[str, Any]:
    tokens = case.tokens
    layers = tuple(range(DENSE_LAYERS, DENSE_LAYERS + len(tokens)))
    judged = Judged(tokens, layout, layers)
    equal, eplb = balanced(tokens, layout=layout), eplb_global(tokens, slots=layout.slots, gpus=layout.gpus)
    plan, plan_ms = _timed(lambda: balanced_nearest(tokens, layout=layout))
    evened, evened_ms = _timed(lambda: balanced_for_sglang(plan, tokens, layout=layout, layers=layers))
    return {
        "loads": f"{case.name} ({case.source})",
        "slots/GPUs/nodes": f"{layout.slots}/{layout.gpus}/{layout.nodes}",
        "eplb_believed": judged.by(eplb, Dispatch.EQUAL),
        "eplb_nearest": judged.by(eplb, Dispatch.NEAREST),
        "for_equal_believed": judged.by(equal, Dispatch.EQUAL),
        "for_equal_nearest": judged.by(equal, Dispatch.NEAREST),
        "for_equal_engine": judged.engine(equal),
        "ours_nearest": judged.by(plan, Dispatch.NEAREST),
        "ours_first": judged.read(plan, first_on_node),
        "ours_uniform": judged.read(plan, any_on_node),
        "ours_worst_layer": judged.worst(plan),
        "ours_under_equal": judged.by(plan, Dispatch.EQUAL),
        "ours_engine_shared": judged.engine(plan, Draws.SHARED),
        "ours_engine": judged.engine(plan),
        "evened_engine": judged.engine(evened),
        "evened_nearest": judged.by(evened, Dispatch.NEAREST),
        "evened_first": judged.read(evened, first_on_node),
        "evened_uniform": judged.read(evened, any_on_node),
        "plan_cpu_ms": plan_ms,
        "evened_cpu_ms": evened_ms,
    }


def _timed(work: Callable[[], Ints]) -> tuple[Ints, float]:
    found, times_ms = work(), []
    for _ in range(REPEATS):
        started_s = time.process_time()
        work()
        times_ms.append(1000 * (time.process_time() - started_s))
    return found, statistics.median(times_ms)
