"""Policies that use the meter alone: none, one threshold, and POLCA's two.

POLCA (arXiv 2308.12908; numbers as quoted in public reading notes).  With p = row power / budget, at every reading:

    p > T2 = 89 %            low priority to 1110 MHz; if still above after that took effect, high to 1305 MHz
    p > T1 = 80 %            low priority to 1275 MHz, the base clock: stop boosting
    p < T2 - 5 % = 84 %      undo the action of T2
    p < T1 - 5 % = 75 %      undo the action of T1

The power brake above 100 % belongs to the guard.  The single-threshold policies are POLCA's baselines.  The notes do
not define them fully: they use T2 here, and 1305 MHz for all servers.
"""

from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from power.controls import FULL_CLOCK, UNTOUCHED, Clocks, Setting
from power.telemetry import Observation

OUT_OF_BAND_S = 40.0
A100_MHZ = 1410.0
BASE_CLOCK = 1275 / A100_MHZ
LOW_CLOCK = 1110 / A100_MHZ
HIGH_CLOCK = 1305 / A100_MHZ
T1, T2, UNDO_BAND = 0.80, 0.89, 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Untouched:
    """A policy of full clocks."""

    name: str = "none"
    command_delay_s: float = 0.0

    def start(self) -> None:
        """Return no state."""

    def decide(self, state: None, observed: Observation) -> tuple[None, Setting]:  # noqa: ARG002 - the interface
        return None, UNTOUCHED

    def calm_below_w(self, state: None, budget_w: float) -> float:  # noqa: ARG002 - the interface
        """Return infinity: readings have no effect."""
        return inf


@dataclass(frozen=True, slots=True, kw_only=True)
class OneThreshold:
    """Capped clocks above the threshold, full clocks below it by the undo band.  The state is whether clocks are
    capped."""

    name: str
    clocks: Clocks
    command_delay_s: float = OUT_OF_BAND_S
    threshold: float = T2
    undo_band: float = UNDO_BAND

    def start(self) -> bool:
        """Return the state of full clocks."""
        return False

    def decide(self, state: bool, observed: Observation) -> tuple[bool, Setting]:  # noqa: FBT001 - the interface
        """Cap, keep or release."""
        capped = _held(observed, active=state, threshold=self.threshold, undo_band=self.undo_band)
        return capped, Setting(self.clocks) if capped else UNTOUCHED

    def calm_below_w(self, state: bool, budget_w: float) -> float:  # noqa: FBT001 - the interface
        """Return the threshold while nothing is capped."""
        return -inf if state else self.threshold * budget_w


class PolcaState(NamedTuple):
    """The actions of POLCA in force."""

    base: bool = False  # the action of T1
    low_since_s: float = inf  # when the action of T2 began; never: infinity
    high: bool = False  # its second half


@dataclass(frozen=True, slots=True, kw_only=True)
class Polca:
    """Two thresholds, two priorities, hysteresis."""

    name: str = "polca"
    command_delay_s: float = OUT_OF_BAND_S
    t1: float = T1
    t2: float = T2
    undo_band: float = UNDO_BAND
    base_clock: float = BASE_CLOCK
    low_clock: float = LOW_CLOCK
    high_clock: float = HIGH_CLOCK

    def start(self) -> PolcaState:
        """Return the state of full clocks."""
        return PolcaState()

    def decide(self, state: PolcaState, observed: Observation) -> tuple[PolcaState, Setting]:
        """Return the state and setting after one reading."""
        base = _held(observed, active=state.base, threshold=self.t1, undo_band=self.undo_band)
        low = _held(observed, active=state.low_since_s < inf, threshold=self.t2, undo_band=self.undo_band)
        since_s = min(state.low_since_s, observed.now_s) if low else inf
        took_effect = low and observed.now_s >= since_s + self.command_delay_s
        high = low and (state.high or (took_effect and observed.reading.row_w > self.t2 * observed.budget_w))
        return PolcaState(base, since_s, high), Setting(self._clocks(base=base, low=low, high=high))

    def calm_below_w(self, state: PolcaState, budget_w: float) -> float:
        """Return T1 while nothing is capped."""
        return -inf if state != PolcaState() else self.t1 * budget_w

    def _clocks(self, *, base: bool, low: bool, high: bool) -> Clocks:
        low_clock = self.low_clock if low else self.base_clock if base else FULL_CLOCK
        high_clock = self.high_clock if high else FULL_CLOCK
        return Clocks(low_token=low_clock, low_prompt=low_clock, high_token=high_clock, high_prompt=high_clock)


def _held(observed: Observation, *, active: bool, threshold: float, undo_band: float) -> bool:
    """Return whether an action is in force after a reading: active above its threshold, undone below it by the band."""
    used_w, budget_w = observed.reading.row_w, observed.budget_w
    return used_w > threshold * budget_w or (active and used_w >= (threshold - undo_band) * budget_w)
