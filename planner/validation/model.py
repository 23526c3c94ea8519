"""What the replay of a plan showed."""

from typing import Literal

from pydantic import Field

from fleet.documents import Frozen
from planner.replay.slo_check import LimitCheck, SloCheck, Tightness


class LossValidation(Frozen):
    """A failure that the plan is to survive: the rest replayed on its own."""

    name: str
    verified: bool
    broken: tuple[LimitCheck, ...] = Field(description="Limits that break; none where the rest cannot be routed.")


class WorkloadValidation(Frozen):
    """What the replay of one workload showed."""

    workload: str
    traffic: Literal["trace", "drawn"]
    requests: int = Field(ge=0)
    hours: float
    utilisation: float = Field(description="Of the rates in `throughput`, that the plan was made with.")
    verdict: SloCheck
    losses: tuple[LossValidation, ...] = ()
    tightness: Tightness | None = Field(description="Whether every replica is needed; absent where a limit is broken.")

    @property
    def verified(self) -> bool:
        """Whether every limit holds, whatever fails of what may."""
        return self.verdict.verified and all(loss.verified for loss in self.losses)
