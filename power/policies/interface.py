"""The interface of a policy: a start state, and a step from an observation to a setting."""

from typing import Protocol, TypeVar

from power.controls import Setting
from power.telemetry import RowObservation

StateT = TypeVar("StateT")


class Policy(Protocol[StateT]):
    """A rule for one row.  Pure: the state is immutable and time is part of the observation."""

    @property
    def name(self) -> str:
        """The name on the command line."""

    @property
    def command_delay_s(self) -> float:
        """The delay of clocks: 40 s through BMCs (POLCA, arXiv 2308.12908), a second or less through agents."""

    def start(self) -> StateT:
        """Return the state before the first observation."""

    def decide(self, state: StateT, observed: RowObservation) -> tuple[StateT, Setting]:
        """Return the next state and setting."""

    def calm_below_w(self, state: StateT, budget_w: float) -> float:
        """While readings stay below this, deciding again from this state would change nothing: neither state nor
        setting.  Negative infinity where every reading counts."""
