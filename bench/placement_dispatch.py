"""Plans judged by who really gets the tokens: under equal split, SGLang's rule `nearest`, and its table as drawn.

Per case: a plan made for equal split (ours) and EPLB's global policy, each as believed and under the rule; our plan
against the rule; and what SGLang 0.5.23 makes of our maps, GPU by GPU (`placement.nearest.engine`), before and after
`evened_for_engine`.  `shared` is the same where all GPUs draw together, as after a rebalance.  Recorded loads start at
layer 3 of 61.  Imbalances are means over layers, unless they say `worst`.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench.eplb import eplb_global
from bench.expert_loads import DENSE_LAYERS, Case, named
from placement.arrays import Floats, Ints
from placement.balance import balanced
from placement.dispatch import Dispatch
from placement.imbalance import imbalance
from placement.layout import Layout
from placement.nearest import Draws, balanced_nearest, engine_imbalance, evened_for_engine

REPEATS = 5
SHAPES = (
    ("decode_in2000out100", 288, 32, 4),
    ("prefill_in4096", 288, 32, 4),
    ("decode_in2000out100", 288, 72, 9),
    ("prefill_in4096", 288, 72, 9),
    ("decode_in2000out100", 320, 64, 8),
    ("prefill_in4096", 320, 64, 8),
)


@dataclass(frozen=True)
class Judged:
    """One plan's imbalance, by who chooses among copies."""

    tokens: Floats
    layout: Layout
    layers: tuple[int, ...]

    def by(self, plan: Ints, rule: Dispatch) -> float:
        return imbalance(plan, self.tokens, layout=self.layout, rule=rule).mean

    def worst(self, plan: Ints) -> float:
        return imbalance(plan, self.tokens, layout=self.layout, rule=Dispatch.NEAREST).max

    def engine(self, plan: Ints, draws: Draws = Draws.OWN) -> float:
        return engine_imbalance(plan, self.tokens, layout=self.layout, layers=self.layers, draws=draws).mean


def run() -> list[dict[str, Any]]:
    """One row per case."""
    return [_row(named(name), Layout.even(slots=slots, gpus=gpus, nodes=nodes)) for name, slots, gpus, nodes in SHAPES]


def _row(case: Case, layout: Layout) -> dict[str, Any]:
    tokens = case.tokens
    layers = tuple(range(DENSE_LAYERS, DENSE_LAYERS + len(tokens)))
    judged = Judged(tokens, layout, layers)
    equal, eplb = balanced(tokens, layout=layout), eplb_global(tokens, slots=layout.slots, gpus=layout.gpus)
    plan, plan_ms = _timed(lambda: balanced_nearest(tokens, layout=layout))
    evened, evened_ms = _timed(lambda: evened_for_engine(plan, tokens, layout=layout, layers=layers))
    return {
        "loads": f"{case.name} ({case.source})",
        "slots/GPUs/nodes": f"{layout.slots}/{layout.gpus}/{layout.nodes}",
        "eplb_believed": judged.by(eplb, Dispatch.EQUAL),
        "eplb_nearest": judged.by(eplb, Dispatch.NEAREST),
        "for_equal_believed": judged.by(equal, Dispatch.EQUAL),
        "for_equal_nearest": judged.by(equal, Dispatch.NEAREST),
        "for_equal_engine": judged.engine(equal),
        "ours_nearest": judged.by(plan, Dispatch.NEAREST),
        "ours_worst_layer": judged.worst(plan),
        "ours_under_equal": judged.by(plan, Dispatch.EQUAL),
        "ours_engine_shared": judged.engine(plan, Draws.SHARED),
        "ours_engine": judged.engine(plan),
        "evened_engine": judged.engine(evened),
        "evened_nearest": judged.by(evened, Dispatch.NEAREST),
        "plan_cpu_ms": plan_ms,
        "evened_cpu_ms": evened_ms,
    }


def _timed(work: Callable[[], Ints]) -> tuple[Ints, float]:
    """What it gives, and its median processor time once compiled."""
    found, times_ms = work(), []
    for _ in range(REPEATS):
        started_s = time.process_time()
        work()
        times_ms.append(1000 * (time.process_time() - started_s))
    return found, statistics.median(times_ms)
