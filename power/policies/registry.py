"""The policies by their command-line names."""

from collections.abc import Sequence
from typing import Any

from fleet.documents import RuleError
from power.controls import Clocks
from power.policies.interface import Policy
from power.policies.ladder import CONSOLIDATE, IN_BAND_S, Ladder
from power.policies.thresholds import HIGH_CLOCK, LOW_CLOCK, OUT_OF_BAND_S, OneThreshold, Polca, Untouched
from power.server_model import BLOOM_A100, ServerModel
from power.workload.workload import TrainingJob

MAX_DELAY_S = 3600.0
OWN_ROUTER = frozenset({"ladder"})  # these change routing; the others leave it as configured
OWN_DELAY_S = {
    "none": 0.0,
    "threshold-low": OUT_OF_BAND_S,
    "threshold-all": OUT_OF_BAND_S,
    "polca": OUT_OF_BAND_S,
    "ladder": IN_BAND_S,
}
POLICY_NAMES = tuple(OWN_DELAY_S)


def policy_named(
    name: str,
    *,
    kinds: Sequence[ServerModel] = (BLOOM_A100,),
    jobs: Sequence[TrainingJob] = (),
    command_delay_s: float | None = None,
) -> Policy[Any]:
    """Return a policy with its own parameters, and its own delay unless given: 2 s makes POLCA an in-band one."""
    if name not in OWN_DELAY_S:
        raise RuleError([(("policy",), f"must be one of {', '.join(POLICY_NAMES)}, got {name!r}")])
    if command_delay_s is not None and not 0 <= command_delay_s <= MAX_DELAY_S:
        raise RuleError([(("command_delay_s",), f"must be from 0 to {MAX_DELAY_S:g} s, got {command_delay_s:g}")])
    delay_s = OWN_DELAY_S[name] if command_delay_s is None else command_delay_s
    match name:
        case "none":
            return Untouched(command_delay_s=delay_s)
        case "threshold-low":
            clocks = Clocks(low_token=LOW_CLOCK, low_prompt=LOW_CLOCK)
            return OneThreshold(name="threshold-low", clocks=clocks, command_delay_s=delay_s)
        case "threshold-all":
            return OneThreshold(name="threshold-all", clocks=Clocks(*[HIGH_CLOCK] * 5), command_delay_s=delay_s)
        case "polca":
            return Polca(command_delay_s=delay_s)
    batched = all(kind.most_together > 1 for kind in kinds)
    routing = CONSOLIDATE if batched else ()
    return Ladder(kinds=tuple(kinds), jobs=tuple(jobs), routing=routing, command_delay_s=delay_s)
