"""Expert imbalance of options that distribute experts over GPUs: given, assumed, or from a placement by recorded loads.

With recorded loads, each distribution is placed as by `fleetwright place`: one placement for all windows, and copies
share their expert's tokens equally.  A step waits for the busiest GPU of each layer, in each window:

    imbalance = mean over layers of  sum over windows of the busiest GPU's tokens / sum over windows of an even share

This value is at least the imbalance of the summed loads, and therefore at least its proven bound.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from pydantic import Field

from fleet.documents import Frozen
from fleet.models import ModelArchitecture
from placement.layout import Layout
from placement.loads import ExpertLoads
from planner.request import Workload

ASSUMED_IMBALANCE = 1.25  # a margin: close to a placement by recorded loads, far from the worst case
POOR_BOUND = 1.05  # above it, redundant experts may help
MAX_ADVISED = 8  # redundant experts per GPU in the advice


class SpreadSource(StrEnum):
    """The source of an imbalance."""

    GIVEN = "given"  # in the request
    PLACED = "placed"  # from a placement by recorded loads
    DEFAULT = "default"  # assumed


class ExpertSpread(Frozen):
    """The distribution of experts over the GPUs of one stage."""

    gpus: int = Field(ge=1, description="That share the experts of a layer.")
    slots: int = Field(ge=1, description="Of one layer on all of them: experts and redundant copies.")
    redundant_experts: int = Field(ge=0, description="Slots beyond one per expert, as engines count them.")
    expert_imbalance: float = Field(ge=1, description="Load of the busiest GPU over the mean, as the rates assume.")
    bound: float | None = Field(
        default=None, ge=1, description="Proven: no placement on as many slots is more even. Absent: no loads given."
    )
    source: SpreadSource
    enough_slots: int | None = Field(
        default=None, ge=1, description="For a poor bound: the slots with which it is good, if any."
    )


@dataclass(frozen=True)
class SpreadTable:
    workload: Workload
    model: ModelArchitecture
    known: dict[tuple[int, int], ExpertSpread] = field(default_factory=dict)

    def of(self, *, gpus: int, slots: int) -> ExpertSpread:
        if (gpus, slots) not in self.known:
            self.known[gpus, slots] = self._found(gpus, slots)
        return self.known[gpus, slots]

    def _found(self, gpus: int, slots: int) -> ExpertSpread:
        given, recorded = self.workload.expert_imbalance, self.workload.expert_loads
        redundant = slots - self.model.experts
        if recorded is not None:
            return _placed(recorded.counts, gpus=gpus, slots=slots)
        return ExpertSpread(
            gpus=gpus,
            slots=slots,
            redundant_experts=redundant,
            expert_imbalance=ASSUMED_IMBALANCE if given is None else given,
            source=SpreadSource.DEFAULT if given is None else SpreadSource.GIVEN,
        )


def spread_text(spread: ExpertSpread, option: str) -> str:
    where = f"{option}: {spread.slots} expert slots on {spread.gpus} GPUs"
    busiest = f"the busiest carries {spread.expert_imbalance:.3f} times the mean"
    if spread.source is SpreadSource.GIVEN:
        return f"{where}, {busiest}, as given in the request"
    if spread.bound is None:
        return f"{where}, {busiest}: assumed; expert_loads would give the value"
    placed = f"{where}, {busiest} when placed by the recorded loads; no placement has less than {spread.bound:.3f}"
    return f"{placed}{_advice(spread)}"


def _advice(spread: ExpertSpread) -> str:
    bound = spread.bound or 1.0
    if bound <= POOR_BOUND:
        return ""
    if spread.enough_slots is None:
        return f", and up to {MAX_ADVISED} redundant experts per GPU do not bring that to {POOR_BOUND:g}"
    each = (spread.enough_slots - spread.slots) // spread.gpus
    return f", and it takes {spread.enough_slots} slots ({each} more per GPU) to bring that to {POOR_BOUND:g} or less"


def _placed(loads: ExpertLoads, *, gpus: int, slots: int) -> ExpertSpread:
    from placement.balance import balanced  # noqa: PLC0415 - compiles on import, and most plans need none
    from placement.bounds import lower_bound  # noqa: PLC0415 - likewise
    from placement.dispatch import Dispatch, gpu_loads  # noqa: PLC0415 - likewise
    from placement.joint import joint_balanced  # noqa: PLC0415 - likewise

    layout, total = Layout.even(slots=slots, gpus=gpus, nodes=1), loads.total
    bound = float(np.maximum(lower_bound(total, layout=layout), 1.0).mean())
    expert_of_slot = joint_balanced(total, layout=layout, start=balanced(total, layout=layout))
    busiest = np.array(
        [gpu_loads(expert_of_slot, window, layout=layout, rule=Dispatch.EQUAL).max(axis=1) for window in loads.tokens]
    )
    per_layer = busiest.sum(axis=0) / (total.sum(axis=1) / gpus)
    return ExpertSpread(
        gpus=gpus,
        slots=slots,
        redundant_experts=slots - loads.experts,
        expert_imbalance=max(float(per_layer.mean()), bound),
        bound=bound,
        source=SpreadSource.PLACED,
        enough_slots=_enough_slots(loads, gpus=gpus, slots=slots) if bound > POOR_BOUND else None,
    )


def _enough_slots(loads: ExpertLoads, *, gpus: int, slots: int) -> int | None:
    from placement.bounds import lower_bound  # noqa: PLC0415 - compiles on import

    for more in _more_slots(loads.experts, gpus, slots):
        layout = Layout.even(slots=more, gpus=gpus, nodes=1)
        if np.maximum(lower_bound(loads.total, layout=layout), 1.0).mean() <= POOR_BOUND:
            return more
    return None


def _more_slots(experts: int, gpus: int, slots: int) -> Iterator[int]:
    """A GPU holds no expert twice."""
    return (more for spare in range(1, MAX_ADVISED + 1) if (more := slots + spare * gpus) <= experts * gpus)
