"""Token traces for traffic between nodes: recorded loads, modelled co-activation.

No public token trace exists, so `placement.traffic.synthetic_trace` routes tokens such that each expert has its
recorded load; `residual_percent` is the error.  The strength of topics is assumed: figures are given for two strengths.
"""

from dataclasses import dataclass

import numpy as np

from bench.expert_loads import Case
from placement.token_trace import TokenTrace
from placement.traffic import Routing, generate_trace, residual

DEEPSEEK_V3 = Routing(active=8, groups=8, active_groups=4)
UNGROUPED = Routing(active=8)
PLANNED_ON, JUDGED_ON = 8192, 8192  # tokens; different ones


@dataclass(frozen=True, eq=False)
class Traces:
    """Return one trace to plan on and another, of the same model, to evaluate on."""

    planned_on: TokenTrace
    judged_on: TokenTrace
    residual_percent: float


def traces(case: Case, *, routing: Routing, strength: float, seed: int = 0) -> Traces:
    """For the loads of a case."""
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
