"""Remote nodes per token at a limited mean imbalance, beside both policies of EPLB: whole models of 58 layers.

Loads are recordings if present.  No public token trace exists, so `placement.traffic.synthetic_trace` routes tokens
such that each expert has its recorded load; `residual_percent` is the error.  The strength of topics is assumed:
figures are given for two strengths.  Each placement is planned on one half of the tokens and evaluated on the other.
EPLB's plans are evaluated under the same dispatch rule.  CPU time is that of one run after a run on one layer.
"""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.eplb import eplb, eplb_global
from bench.expert_loads import GROUPS, Case, named
from bench.harness import Row
from placement.arrays import Floats, Ints
from placement.dispatch import Dispatch
from placement.imbalance import imbalance
from placement.layout import Layout
from placement.token_trace import TokenTrace
from placement.traffic import Routing, generate_trace, minimise_traffic, remote_nodes, residual

DEEPSEEK_V3 = Routing(active=8, groups=8, active_groups=4)
UNGROUPED = Routing(active=8)
PLANNED_ON, JUDGED_ON = 8192, 8192  # tokens; different ones
CEILING, SEED = 1.02, 0
DECODE, PREFILL = "decode_in2000out100", "prefill_in2048"


@dataclass(frozen=True, eq=False)
class Traces:
    planned_on: TokenTrace
    judged_on: TokenTrace
    residual_percent: float


def traces(case: Case, *, routing: Routing, strength: float, seed: int = 0) -> Traces:
    both = generate_trace(
        case.tokens,
        routing=routing,
        count=PLANNED_ON + JUDGED_ON,
        rng=np.random.default_rng(seed),
        strength=strength,
    )
    return Traces(
        both.part(0, PLANNED_ON),
        both.part(PLANNED_ON, both.tokens),
        100 * float(residual(both, case.tokens).mean()),
    )


@dataclass(frozen=True)
class Setting:
    case: str
    slots: int
    gpus: int
    nodes: int
    rule: Dispatch = Dispatch.NEAREST
    routing: Routing = DEEPSEEK_V3
    strength: float = 0.4
    ceiling: float = CEILING


SETTINGS = (
    Setting(DECODE, 288, 32, 4),
    Setting(DECODE, 288, 32, 4, rule=Dispatch.EQUAL),
    Setting(DECODE, 288, 32, 4, rule=Dispatch.EQUAL, ceiling=1.25),
    Setting(PREFILL, 288, 32, 4),
    Setting(PREFILL, 320, 64, 8),
    Setting(PREFILL, 320, 64, 8, strength=0.8),
    Setting(PREFILL, 320, 64, 8, rule=Dispatch.EQUAL),
    Setting(DECODE, 288, 72, 9),
    Setting(DECODE, 288, 32, 4, routing=UNGROUPED),
    Setting(PREFILL, 320, 64, 8, routing=UNGROUPED),
)


def run() -> list[Row]:
    made: dict[tuple[str, Routing, float], Traces] = {}
    rows = []
    for setting in SETTINGS:
        key = (setting.case, setting.routing, setting.strength)
        if key not in made:
            made[key] = traces(named(setting.case), routing=setting.routing, strength=setting.strength, seed=SEED)
        rows.append(_row(setting, named(setting.case).tokens, made[key]))
    return rows


def _row(setting: Setting, tokens: Floats, trace: Traces) -> Row:
    layout = Layout.even(slots=setting.slots, gpus=setting.gpus, nodes=setting.nodes)
    first = TokenTrace(trace.planned_on.experts[:, :1].copy(), trace.planned_on.experts_per_layer)
    asked: dict[str, Any] = {"layout": layout, "rule": setting.rule, "ceiling": setting.ceiling, "seed": SEED}
    minimise_traffic(tokens[:1], first, **asked)
    begun = time.process_time()
    ours = minimise_traffic(tokens, trace.planned_on, **asked)
    cpu_s = time.process_time() - begun
    by_node = eplb(tokens, slots=setting.slots, groups=GROUPS, nodes=setting.nodes, gpus=setting.gpus)
    anywhere = eplb_global(tokens, slots=setting.slots, gpus=setting.gpus)

    def sent(placement: Ints, tokens_of: TokenTrace) -> float:
        return float(remote_nodes(placement, tokens_of, layout=layout, rule=setting.rule).mean())

    def uneven(placement: Ints) -> float:
        return imbalance(placement, tokens, layout=layout, rule=setting.rule).mean

    remote = sent(ours, trace.judged_on)
    nearest = imbalance(ours, tokens, layout=layout, rule=Dispatch.NEAREST).mean
    remote_nearest = remote_nodes(ours, trace.judged_on, layout=layout, rule=Dispatch.NEAREST).mean()
    return {
        "loads": setting.case,
        "routing": "groups" if setting.routing.groups > 1 else "no groups",
        "topics": setting.strength,
        "nodes": setting.nodes,
        "rule": setting.rule.value,
        "residual_percent": trace.residual_percent,
        "ceiling": setting.ceiling,
        "imbalance": uneven(ours),
        "remote_nodes": remote,
        "remote_nodes_planned_on": sent(ours, trace.planned_on),
        "imbalance_if_nearest": nearest,
        "remote_nodes_if_nearest": float(remote_nearest),
        "eplb_by_node_imbalance": uneven(by_node),
        "eplb_by_node_remote_nodes": sent(by_node, trace.judged_on),
        "eplb_global_imbalance": uneven(anywhere),
        "eplb_global_remote_nodes": sent(anywhere, trace.judged_on),
        "less_than_by_node_percent": 100 * (1 - remote / sent(by_node, trace.judged_on)),
        "less_than_global_percent": 100 * (1 - remote / sent(anywhere, trace.judged_on)),
        "cpu_s": cpu_s,
    }
