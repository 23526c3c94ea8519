"""The one face of everything that can be scaled: observe, plan changes, apply, verify.

An actuator knows one target and speaks of it by GPU type; how a GPU type is spelt on the other side (a deployment, a
worker group) is its own affair.  It keeps no state: what it needs to know, it reads.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

Replicas = Mapping[str, int]  # GPU type -> replicas


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What was read from the target just now.  `asked` and `running` name the same GPU types."""

    asked: Replicas  # what the target has been told to run
    running: Replicas  # what serves requests
    allowed: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # least and most, where the target has bounds
    note: str | None = None  # what the target itself says is wrong


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Ask for another number of replicas of one GPU type.  Absolute, so doing it twice is doing it once."""

    gpu: str
    replicas_before: int
    replicas_after: int

    @property
    def size(self) -> int:
        """Replicas that this step starts or stops."""
        return abs(self.replicas_after - self.replicas_before)

    @property
    def rises(self) -> bool:
        """Whether it takes nothing away."""
        return self.replicas_after > self.replicas_before


class Actuator(Protocol):
    """Drives one target.  `observe` and `apply` raise ActuationError."""

    async def observe(self) -> Observation:
        """Read the target."""

    def plan_changes(self, *, wanted: Replicas, observation: Observation, max_step: int) -> tuple[Step, ...]:
        """The steps that may be taken now, in order; none while earlier ones have yet to show, or when all is done."""

    async def apply(self, step: Step) -> None:
        """Take one step: ask, without waiting for it to show."""

    def verify(self, *, wanted: Replicas, observation: Observation) -> bool:
        """Whether the target was read to be exactly as wanted."""
