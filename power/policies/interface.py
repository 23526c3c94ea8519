"""What every policy is: a start, and one step from what was seen to what to ask for."""

from typing import Protocol, TypeVar

from power.controls import Setting
from power.telemetry import Observation

StateT = TypeVar("StateT")


class Policy(Protocol[StateT]):
    """A rule for one row.  Pure: the state is a value, time comes with what was seen."""

    @property
    def name(self) -> str:
        """As the command line calls it."""

    @property
    def command_delay_s(self) -> float:
        """From an order to the clock: 40 s through BMCs (POLCA, arXiv 2308.12908), a second or less through agents."""

    def start(self) -> StateT:
        """Before anything was seen."""

    def decide(self, state: StateT, observed: Observation) -> tuple[StateT, Setting]:
        """What to ask for now."""

    def calm_below_w(self, state: StateT, budget_w: float) -> float:
        """While readings stay below this, deciding again from this state would change nothing: neither state nor
        setting.  Negative infinity where every reading counts."""
