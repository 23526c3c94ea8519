"""Plans evaluated under an equal split, under SGLang's rule `nearest`, and by SGLang's own table of draws.

Per case: a plan made for equal split (ours) and EPLB's global policy under the rule; our plan for the rule; and what
SGLang 0.5.23 makes of our maps, GPU by GPU (`placement.nearest.sglang_model`), before and after `balanced_for_sglang`
(`evened`).  Recorded loads start
at layer 3 of 61.  Imbalances are means over layers.
"""

from bench.eplb import eplb_global
from bench.expert_loads import DENSE_LAYERS, Case, named
from bench.harness import Row, processor_ms
from placement.arrays import Ints
from placement.balance import balanced
from placement.dispatch import Dispatch
from placement.imbalance import imbalance
from placement.layout import Layout
from placement.nearest import balanced_for_sglang, balanced_nearest, engine_imbalance

REPEATS = 5
SHAPES = (
    ("decode_in2000out100", 288, 32, 4),
    ("prefill_in4096", 288, 32, 4),
    ("decode_in2000out100", 288, 72, 9),
    ("prefill_in4096", 288, 72, 9),
    ("decode_in2000out100", 320, 64, 8),
    ("prefill_in4096", 320, 64, 8),
)


def run() -> list[Row]:
    return [_row(named(name), Layout.even(slots=slots, gpus=gpus, nodes=nodes)) for name, slots, gpus, nodes in SHAPES]


def _row(case: Case, layout: Layout) -> Row:
    tokens = case.tokens
    layers = tuple(range(DENSE_LAYERS, DENSE_LAYERS + len(tokens)))

    def by(plan: Ints, rule: Dispatch) -> float:
        return imbalance(plan, tokens, layout=layout, rule=rule).mean

    def drawn(plan: Ints) -> float:
        return engine_imbalance(plan, tokens, layout=layout, layers=layers).mean

    equal, eplb = balanced(tokens, layout=layout), eplb_global(tokens, slots=layout.slots, gpus=layout.gpus)
    plan, plan_ms = processor_ms(lambda: balanced_nearest(tokens, layout=layout), repeats=REPEATS)
    evened = balanced_for_sglang(plan, tokens, layout=layout, layers=layers)
    return {
        "loads": f"{case.name} ({case.source})",
        "slots / GPUs / nodes": f"{layout.slots} / {layout.gpus} / {layout.nodes}",
        "equal_plan_assumed": by(equal, Dispatch.EQUAL),
        "equal_plan_nearest": by(equal, Dispatch.NEAREST),
        "equal_plan_engine": drawn(equal),
        "eplb_nearest": by(eplb, Dispatch.NEAREST),
        "ours_nearest": by(plan, Dispatch.NEAREST),
        "ours_engine": drawn(plan),
        "rebalanced_engine": drawn(evened),
        "rebalanced_nearest": by(evened, Dispatch.NEAREST),
        "plan_cpu_ms": plan_ms,
    }
