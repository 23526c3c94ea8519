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
from power.telemetry import RowObservation

OUT_OF_BAND_S = 40.0
A100_MHZ = 1410.0
BASE_CLOCK = 1275 / A100_MHZ
LOW_CLOCK = 1110 / A100_MHZ
HIGH_CLOCK = 1305 / A100_MHZ
T1, T2, UNDO_BAND = 0.80, 0.89, 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Untouched:
    name: str = "none"
    command_delay_s: float = 0.0

    def start(self) -> None:
        """Return no state."""

    def decide(self, state: None, observed: RowObservation) -> tuple[None, Setting]:  # noqa: ARG002 - the interface
        return None, UNTOUCHED

    def calm_below_w(self, state: None, budget_w: float) -> float:  # noqa: ARG002 - the interface
        return inf


@dataclass(frozen=True, slots=True, kw_only=True)
class OneThreshold:
    """Capped clocks above T2, full clocks below it by the undo band.  The state is whether clocks are capped."""

    name: str
    clocks: Clocks
    command_delay_s: float = OUT_OF_BAND_S

    def start(self) -> bool:
        return False

    def decide(self, state: bool, observed: RowObservation) -> tuple[bool, Setting]:  # noqa: FBT001 - the interface
        capped = _held(observed, active=state, threshold=T2)
        return capped, Setting(self.clocks) if capped else UNTOUCHED

    def calm_below_w(self, state: bool, budget_w: float) -> float:  # noqa: FBT001 - the interface
        return -inf if state else T2 * budget_w


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

    def start(self) -> PolcaState:
        return PolcaState()

    def decide(self, state: PolcaState, observed: RowObservation) -> tuple[PolcaState, Setting]:
        base = _held(observed, active=state.base, threshold=T1)
        low = _held(observed, active=state.low_since_s < inf, threshold=T2)
        since_s = min(state.low_since_s, observed.now_s) if low else inf
        took_effect = low and observed.now_s >= since_s + self.command_delay_s
        high = low and (state.high or (took_effect and observed.reading.row_w > T2 * observed.budget_w))
        low_clock = LOW_CLOCK if low else BASE_CLOCK if base else FULL_CLOCK
        high_clock = HIGH_CLOCK if high else FULL_CLOCK
        clocks = Clocks(low_token=low_clock, low_prompt=low_clock, high_token=high_clock, high_prompt=high_clock)
        return PolcaState(base, since_s, high), Setting(clocks)

    def calm_below_w(self, state: PolcaState, budget_w: float) -> float:
        return -inf if state != PolcaState() else T1 * budget_w


def _held(observed: RowObservation, *, active: bool, threshold: float) -> bool:
    """Return whether an action is in force after a reading: active above its threshold, undone below it by the band."""
    used_w, budget_w = observed.reading.row_w, observed.budget_w
    return used_w > threshold * budget_w or (active and used_w >= (threshold - UNDO_BAND) * budget_w)
