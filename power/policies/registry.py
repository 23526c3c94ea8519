"""The policies by their command-line names."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fleet.documents import RuleError
from power.controls import Clocks
from power.policies.interface import Policy
from power.policies.ladder import CONSOLIDATE, IN_BAND_S, Ladder
from power.policies.thresholds import HIGH_CLOCK, LOW_CLOCK, OUT_OF_BAND_S, OneThreshold, Polca, Untouched
from power.server_model import BLOOM_A100, ServerModel
from power.workload.workload import TrainingJob

Make = Callable[[tuple[ServerModel, ...], tuple[TrainingJob, ...], float | None], Policy[Any]]

LONGEST_DELAY_S = 3600.0
OWN_ROUTER = frozenset({"ladder"})  # these change routing; the others leave it as configured


def policy_named(
    name: str,
    *,
    kinds: Sequence[ServerModel] = (BLOOM_A100,),
    jobs: Sequence[TrainingJob] = (),
    command_delay_s: float | None = None,
) -> Policy[Any]:
    """Return a policy with its own parameters, and its own delay unless given: 2 s makes POLCA an in-band one."""
    if name not in _MAKERS:
        raise RuleError([(("policy",), f"must be one of {', '.join(POLICY_NAMES)}, got {name!r}")])
    if command_delay_s is not None and not 0 <= command_delay_s <= LONGEST_DELAY_S:
        raise RuleError([(("command_delay_s",), f"must be from 0 to {LONGEST_DELAY_S:g} s, got {command_delay_s:g}")])
    return _MAKERS[name](tuple(kinds), tuple(jobs), command_delay_s)


def _none(_kinds: tuple[ServerModel, ...], _jobs: tuple[TrainingJob, ...], delay_s: float | None) -> Policy[Any]:
    return Untouched(command_delay_s=0.0 if delay_s is None else delay_s)


def _threshold_low(
    _kinds: tuple[ServerModel, ...], _jobs: tuple[TrainingJob, ...], delay_s: float | None
) -> Policy[Any]:
    clocks = Clocks(low_token=LOW_CLOCK, low_prompt=LOW_CLOCK)
    delay_s = OUT_OF_BAND_S if delay_s is None else delay_s
    return OneThreshold(name="threshold-low", clocks=clocks, command_delay_s=delay_s)


def _threshold_all(
    _kinds: tuple[ServerModel, ...], _jobs: tuple[TrainingJob, ...], delay_s: float | None
) -> Policy[Any]:
    delay_s = OUT_OF_BAND_S if delay_s is None else delay_s
    return OneThreshold(name="threshold-all", clocks=Clocks(*[HIGH_CLOCK] * 5), command_delay_s=delay_s)


def _polca(_kinds: tuple[ServerModel, ...], _jobs: tuple[TrainingJob, ...], delay_s: float | None) -> Policy[Any]:
    return Polca(command_delay_s=OUT_OF_BAND_S if delay_s is None else delay_s)


def _ladder(kinds: tuple[ServerModel, ...], jobs: tuple[TrainingJob, ...], delay_s: float | None) -> Policy[Any]:
    shares = all(kind.most_together > 1 for kind in kinds)
    delay_s = IN_BAND_S if delay_s is None else delay_s
    return Ladder(kinds=kinds, jobs=jobs, routing=CONSOLIDATE if shares else (), command_delay_s=delay_s)


_MAKERS: Mapping[str, Make] = {
    "none": _none,
    "threshold-low": _threshold_low,
    "threshold-all": _threshold_all,
    "polca": _polca,
    "ladder": _ladder,
}
POLICY_NAMES = tuple(_MAKERS)
