"""The interface to the GPUs of one node, for every vendor and path.

A write is a request: only `enforced` reports the caps in force.  A reloaded driver lost every cap, and `epoch` has
increased.  A GPU is identified by its UUID, which stays when indices change.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol


class Caps(NamedTuple):
    """Upper bounds on one GPU; None: no bound."""

    power_limit_w: float | None = None
    clock_mhz: int | None = None

    def slower(self, other: "Caps") -> "Caps":
        watts = [limit for limit in (self.power_limit_w, other.power_limit_w) if limit is not None]
        clocks = [clock for clock in (self.clock_mhz, other.clock_mhz) if clock is not None]
        return Caps(min(watts, default=None), min(clocks, default=None))


NO_CAPS = Caps()


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuIdentity:
    uuid: str
    name: str
    bus_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReading:
    """Telemetry of one GPU; None for values that the GPU does not report."""

    power_w: float | None = None
    energy_j: float | None = None  # since the driver was loaded
    temperature_c: float | None = None
    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    utilization: float | None = None  # share of the time in which anything ran
    slowed_by: tuple[str, ...] = ()
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuLimits:
    """The caps that may be set."""

    min_w: float | None = None
    max_w: float | None = None
    default_w: float | None = None
    clocks_mhz: tuple[int, ...] = ()  # highest first; empty: clocks cannot be locked

    @property
    def full_clock_mhz(self) -> int | None:
        return self.clocks_mhz[0] if self.clocks_mhz else None

    @property
    def brake_clock_mhz(self) -> int | None:
        """Return the lowest clock."""
        return self.clocks_mhz[-1] if self.clocks_mhz else None

    def clock_at_most(self, mhz: float) -> int | None:
        """Return the highest settable clock that is not above this one; the lowest where all are above."""
        if not self.clocks_mhz:
            return None
        return next((clock for clock in self.clocks_mhz if clock <= mhz + CLOCK_MARGIN_MHZ), self.clocks_mhz[-1])

    def watts_within(self, watts: float) -> float:
        """Return the nearest settable limit."""
        least, most = self.min_w or 0.0, self.max_w
        return max(least, watts if most is None else min(watts, most))


CLOCK_MARGIN_MHZ = 0.5  # a share of the full clock that names a step comes back to that step


class GpuDriver(Protocol):
    """All GPUs of one node behind one driver or BMC.  Every call may raise GpuError, and may take a while."""

    driver: str
    period_s: float  # of polls; more frequent ones have no new values
    reports_locked_clock: bool  # whether `enforced` has the locked clock

    @property
    def epoch(self) -> int:
        """Return how many loads of the driver were detected."""

    def identities(self) -> Sequence[GpuIdentity]:
        """Return the GPUs as of the last load."""

    def limits(self, uuid: str) -> GpuLimits:
        """Return the caps that may be set."""

    def read(self, uuid: str) -> GpuReading:
        """Return the telemetry."""

    def enforced(self, uuid: str) -> Caps:
        """Return the caps in force, whoever set them."""

    def configured(self, uuid: str) -> Caps:
        """Return the caps set through this interface, to restore later; others may keep the enforced ones lower."""

    def set_power_limit(self, uuid: str, watts: float | None) -> None:
        """Set a limit; None: the default limit."""

    def lock_clock(self, uuid: str, mhz: int | None) -> None:
        """Set the highest clock; None: no lock."""

    def close(self) -> None:
        """Close the driver; no cap changes."""
