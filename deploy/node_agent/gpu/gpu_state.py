"""The state of one GPU after the last poll, and the evidence on its caps.  Pure.

If a driver does not report its locked clock, the lock counts as enforced until the GPU runs above it in two polls in a
row: one poll may fall between the write and its effect.
"""

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Self

from deploy.node_agent.gpu.cap_state_machine import CapState, CapStatus
from deploy.node_agent.gpu.errors import GpuError
from deploy.node_agent.gpu.interface import NO_CAPS, Caps, GpuIdentity, GpuLimits, GpuReading

MAX_OVER = 2
CLOCK_TOLERANCE = 0.01  # of the lock: drivers step by 0.8 to 1.1 % of the full clock


NO_READING = GpuReading()


class CapKind(IntEnum):
    """The cap: its index in `Caps` and in `GpuState.cap_states`."""

    POWER = 0
    CLOCK = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuState:
    identity: GpuIdentity
    limits: GpuLimits
    found: Caps  # before anything was set
    cap_states: tuple[CapState, CapState]
    known: bool = True  # limits and original caps were read; no cap can be requested before
    reading: GpuReading = NO_READING
    enforced: Caps = NO_CAPS
    planned: Caps = NO_CAPS
    polled_at_s: float = -float("inf")
    over: int = 0  # polls in a row at which it ran above its lock
    lost: bool = False  # it did not respond to the last poll
    error: str | None = None  # of the last poll or write

    @property
    def applied(self) -> Caps:
        """Return the caps that the driver accepted since its last load."""
        power, clock = self.cap_states
        return Caps(power.commanded, None if clock.commanded is None else int(clock.commanded))

    @property
    def touched(self) -> bool:
        """Return whether any cap may differ from the original."""
        return any(cap_state.touched for cap_state in self.cap_states)

    def with_cap_state(self, kind: CapKind, cap_state: CapState) -> Self:
        power, clock = self.cap_states
        return replace(self, cap_states=(cap_state, clock) if kind is CapKind.POWER else (power, cap_state))

    def polled(self, reading: GpuReading, enforced: Caps, *, now_s: float, reports_locked_clock: bool) -> Self:
        over = 0 if reports_locked_clock else self._over(reading)
        clock = enforced.clock_mhz if reports_locked_clock else self._clock_inferred(reading, over=over)
        return replace(
            self,
            reading=reading,
            enforced=Caps(enforced.power_limit_w, clock),
            over=over,
            polled_at_s=now_s,
            lost=False,
            error=self.error if any(cap_state.state is CapStatus.REFUSED for cap_state in self.cap_states) else None,
        )

    def bounded(self, wanted: Caps) -> Caps:
        """Return the planned caps: at most the original ones, and within the range."""
        planned = wanted.slower(self.found) if wanted != NO_CAPS else wanted
        watts = None if wanted.power_limit_w is None else planned.power_limit_w
        clock = None if wanted.clock_mhz is None else planned.clock_mhz
        return Caps(
            None if watts is None else self.limits.watts_within(watts),
            None if clock is None else self.limits.clock_at_most(clock),
        )

    def cleared(self) -> Self:
        power, clock = self.cap_states
        return replace(self, cap_states=(power.cleared(), clock.cleared()), over=0)

    def silent(self, error: GpuError) -> Self:
        return replace(self, lost=True, error=str(error))

    def _over(self, reading: GpuReading) -> int:
        lock, clock_mhz = self.cap_states[CapKind.CLOCK].commanded, reading.sm_clock_mhz
        if lock is None or clock_mhz is None or clock_mhz <= lock * (1 + CLOCK_TOLERANCE):
            return 0
        return self.over + 1

    def _clock_inferred(self, reading: GpuReading, *, over: int) -> int | None:
        if over >= MAX_OVER and reading.sm_clock_mhz is not None:
            return int(reading.sm_clock_mhz)
        return self.applied.clock_mhz
