"""Conversion between a clock, as a share of the full clock, and the caps of a GPU.

If clocks can be locked: the highest supported one that is not above the share.  If only a power limit can be set: the
power under which nine of ten models stay at that clock, by the curves of `power.curves`.
"""

from functools import cache

from deploy.node_agent.gpu.interface import NO_CAPS, Caps, GpuLimits
from fleet.errors import UnknownNameError
from fleet.gpus import builtin_gpus
from power.controls import FULL_CLOCK
from power.curves import PowerCurve, power_curve
from power.measured_models.document import builtin_shares

NEAR = 1e-6
_STEPS = 40  # of the bisection: far finer than any driver's watt


@cache
def curve_of(name: str) -> PowerCurve | None:
    """Return the curve of a board by its driver's name; None for a board outside the catalogue."""
    try:
        return power_curve(builtin_gpus().get(name))
    except UnknownNameError:
        return None


def caps_at(share: float, *, limits: GpuLimits, curve: PowerCurve | None) -> Caps:
    if share >= FULL_CLOCK - NEAR:
        return NO_CAPS
    if limits.full_clock_mhz is not None:
        return Caps(clock_mhz=limits.clock_at_most(share * limits.full_clock_mhz))
    return Caps(power_limit_w=_limit_w(share, limits=limits, curve=curve))


def brake_caps(*, limits: GpuLimits, curve: PowerCurve | None) -> Caps:
    """Return the lowest caps; without a known minimum, the power at the lowest clock."""
    if limits.brake_clock_mhz is not None:
        return Caps(clock_mhz=limits.brake_clock_mhz)
    min_w = limits.min_w
    return Caps(power_limit_w=_limit_w(0.0, limits=limits, curve=curve) if min_w is None else min_w)


def share_of(caps: Caps, *, limits: GpuLimits, curve: PowerCurve | None) -> float:
    """Return the share of the full clock that enforced caps leave, at the most."""
    if limits.full_clock_mhz is not None:
        return FULL_CLOCK if caps.clock_mhz is None else min(FULL_CLOCK, caps.clock_mhz / limits.full_clock_mhz)
    if caps.power_limit_w is None:
        return FULL_CLOCK
    low, high = 0.0, FULL_CLOCK
    for _ in range(_STEPS):
        middle = (low + high) / 2
        above = _limit_w(middle, limits=limits, curve=curve) > caps.power_limit_w
        low, high = (low, middle) if above else (middle, high)
    return high


def _limit_w(share: float, *, limits: GpuLimits, curve: PowerCurve | None) -> float:
    if curve is not None:
        return limits.watts_within(curve.busy_w(share).high)
    # A board outside the catalogue: the pooled shares, with its own limit as its rating.
    clock = builtin_shares().clock
    rated_w = limits.default_w or limits.max_w or 0.0
    return limits.watts_within(rated_w * min(1.0, clock.left(share) * clock.spread.high))
