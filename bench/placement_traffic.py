"""Remote nodes per token at a limited mean imbalance, beside both policies of EPLB: whole models of 58 layers.

Loads are recordings if present.  No public token trace exists, so `placement.traffic.generate_trace` routes tokens such
that each expert has its recorded load; `residual_percent` is the error.  The strength of topics is assumed.  Each
placement is planned on one half of the tokens and evaluated on the other.  EPLB's plans are evaluated under the same
dispatch rule.  CPU time is that of one run after a run on one layer.
"""

import time
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from bench.eplb import eplb, eplb_global
from bench.expert_loads import GROUPS, named
from bench.harness import Row
from placement.arrays import Floats, Ints
from placement.dispatch import Dispatch
from placement.imbalance import imbalance
from placement.layout import Layout
from placement.token_trace import TokenTrace
from placement.traffic import Routing, generate_trace, minimise_traffic, remote_nodes, residual

DEEPSEEK_V3 = Routing(active=8, groups=8, active_groups=4)
TOPICS = 0.4  # strength
PLANNED_ON, EVALUATED_ON = 8192, 8192  # tokens; different ones
CEILING, SEED = 1.02, 0
DECODE, PREFILL = "decode_in2000out100", "prefill_in2048"


@dataclass(frozen=True)
class Setting:
    case: str
    slots: int
    gpus: int
    nodes: int
    rule: Dispatch = Dispatch.NEAREST


SETTINGS = (
    Setting(DECODE, 288, 32, 4),
    Setting(DECODE, 288, 32, 4, rule=Dispatch.EQUAL),
    Setting(PREFILL, 288, 32, 4),
    Setting(PREFILL, 320, 64, 8),
    Setting(PREFILL, 320, 64, 8, rule=Dispatch.EQUAL),
    Setting(DECODE, 288, 72, 9),
)


def run() -> list[Row]:
    return [_row(setting, named(setting.case).tokens, _trace(setting.case)) for setting in SETTINGS]


@cache
def _trace(case: str) -> TokenTrace:
    count, rng = PLANNED_ON + EVALUATED_ON, np.random.default_rng(SEED)
    return generate_trace(named(case).tokens, routing=DEEPSEEK_V3, count=count, rng=rng, strength=TOPICS)


def _row(setting: Setting, tokens: Floats, trace: TokenTrace) -> Row:
    layout = Layout.even(slots=setting.slots, gpus=setting.gpus, nodes=setting.nodes)
    planned_on, evaluated_on = trace.part(0, PLANNED_ON), trace.part(PLANNED_ON, trace.tokens)
    first = TokenTrace(planned_on.experts[:, :1].copy(), planned_on.experts_per_layer)
    options: dict[str, Any] = {"layout": layout, "rule": setting.rule, "ceiling": CEILING, "seed": SEED}
    minimise_traffic(tokens[:1], first, **options)
    begun = time.process_time()
    ours = minimise_traffic(tokens, planned_on, **options)
    cpu_s = time.process_time() - begun
    by_node = eplb(tokens, slots=setting.slots, groups=GROUPS, nodes=setting.nodes, gpus=setting.gpus)
    anywhere = eplb_global(tokens, slots=setting.slots, gpus=setting.gpus)

    def sent(placement: Ints) -> float:
        return float(remote_nodes(placement, evaluated_on, layout=layout, rule=setting.rule).mean())

    def uneven(placement: Ints) -> float:
        return imbalance(placement, tokens, layout=layout, rule=setting.rule).mean

    remote = sent(ours)
    return {
        "loads": setting.case,
        "slots / GPUs / nodes": f"{setting.slots} / {setting.gpus} / {setting.nodes}",
        "rule": setting.rule.value,
        "residual_percent": 100 * float(residual(trace, tokens).mean()),
        "imbalance": uneven(ours),
        "remote_nodes": remote,
        "eplb_by_node_imbalance": uneven(by_node),
        "eplb_by_node_remote_nodes": sent(by_node),
        "eplb_global_imbalance": uneven(anywhere),
        "eplb_global_remote_nodes": sent(anywhere),
        "less_than_global_percent": 100 * (1 - remote / sent(anywhere)),
        "cpu_s": cpu_s,
    }
