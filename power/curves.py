"""The power of a GPU board by load and clock, and the cost in speed of a lower clock.

Board power at full clock is `idle + (busy - idle) * load^g`.  A clock `c`, as a share of the full clock, leaves
`f + (1 - f) * c^a` of that power.  A phase with clock sensitivity `k` takes `1 + k * (1/c - 1)` times as long.  The
shares are fitted on public measurements and ship with their spread, source and date
(docs/explanation/power/measured-models.md).  A board without measurements gets the pooled shares of its rated power
with wider spreads.
"""

from dataclasses import dataclass
from typing import Literal

from fleet.gpus import GpuSpec
from power.controls import FULL_CLOCK
from power.measured_models.document import BoardShares, ClockShares, PowerShares, ServerShares, Spread, builtin_shares

QUARTER_LOAD = 0.25  # where the straight line that a linear program may use leaves the curve
LEVEL_STEP = 0.05  # levels finer than this are within the spread of the fit
FULL_POWER_MARGIN = 1e-9

Bound = Literal["compute", "memory"]


@dataclass(frozen=True, slots=True)
class Watts:
    """A power with its range over 90 % of the models."""

    low: float
    mid: float
    high: float


@dataclass(frozen=True, slots=True)
class PowerCurve:
    """Board power of one GPU type.  All functions are pure; loads and clocks are shares from 0 to 1."""

    gpu: GpuSpec
    board: BoardShares
    clock: ClockShares
    server: ServerShares

    @property
    def idle_w(self) -> Watts:
        """Return the power with weights loaded and no requests; the small effect of a clock lock is not counted."""
        return self._of_tdp(self.board.idle_share)

    def busy_w(self, clock: float = FULL_CLOCK) -> Watts:
        """Return the power at full load: a mean over seconds, at most the rating."""
        at_full = self._of_tdp(self.board.busy_share)
        if clock > FULL_CLOCK - FULL_POWER_MARGIN:
            return at_full
        left, spread, idle = self.clock.left(clock), self.clock.spread, self.idle_w
        return Watts(
            max(idle.low, at_full.low * left * spread.low),
            max(idle.mid, at_full.mid * left),
            max(idle.high, min(at_full.high, at_full.high * left * spread.high)),
        )

    def power_w(self, load: float, clock: float = FULL_CLOCK) -> Watts:
        """Return the power at a load, as a share of the highest rate."""
        idle, busy = self.idle_w, self.busy_w(clock)
        if load <= 0:
            return idle
        rise = min(1.0, load) ** self.board.load_exponent
        spread = self.board.load_spread if load < 1 else Spread(low=1, mid=1, high=1)
        return Watts(
            max(idle.low, (idle.low + (busy.low - idle.low) * rise) * spread.low),
            idle.mid + (busy.mid - idle.mid) * rise,
            min(busy.high, (idle.high + (busy.high - idle.high) * rise) * spread.high),
        )

    def standing_w(self, clock: float = FULL_CLOCK) -> float:
        """Return the intercept of the line through quarter and full load, for a linear program per replica."""
        quarter, full = self.power_w(QUARTER_LOAD, clock).mid, self.busy_w(clock).mid
        return full - (full - quarter) / (1 - QUARTER_LOAD)

    def speed(self, clock: float, phase: Bound) -> Spread:
        """Return the speed of a phase relative to full clock."""
        shares = self.clock.compute_sensitivity if phase == "compute" else self.clock.memory_sensitivity
        low, mid, high = (1 / (1 + k * (1 / clock - 1)) for k in (shares.high, shares.mid, shares.low))
        return Spread(low=low, mid=mid, high=high)

    def efficient_clock(self, phase: Bound) -> float:
        """Return the clock at which a phase takes the least energy."""
        lowest, steps = round(self.clock.lowest / LEVEL_STEP), round(FULL_CLOCK / LEVEL_STEP)
        grid = [round(step * LEVEL_STEP, 2) for step in range(lowest, steps + 1)]
        return min(grid, key=lambda clock: self.clock.left(clock) / self.speed(clock, phase).mid)

    @property
    def levels(self) -> tuple[float, ...]:
        """Return the clocks to choose from, highest first: full, the most efficient for decoding, and one between."""
        lowest = self.efficient_clock("memory")
        between = round(round((FULL_CLOCK + lowest) / 2 / LEVEL_STEP) * LEVEL_STEP, 2)
        return tuple(sorted({FULL_CLOCK, between, lowest}, reverse=True))

    def server_w(self, gpu_w: float) -> Watts:
        """Return the server's share of power for one GPU."""
        server = self.server
        mid, spread = server.base_share_of_tdp * self.gpu.rated_w + server.share_of_gpu * gpu_w, server.spread
        return Watts(mid * spread.low, mid, mid * spread.high)

    def _of_tdp(self, share: Spread) -> Watts:
        return Watts(*(self.gpu.rated_w * each for each in (share.low, share.mid, share.high)))


@dataclass(frozen=True, slots=True)
class ReplicaPower:
    """The power of one replica: all its GPUs and its share of their servers."""

    planned_idle_w: float  # nearly idle: intercept of the linear form that planning uses
    planned_busy_w: float  # at full load
    limit_w: float  # that a feed must carry at full load, for 90 % of the models


def power_curve(gpu: GpuSpec, *, shares: PowerShares | None = None) -> PowerCurve:
    """Return the curve of a GPU type, from the shipped shares unless others are given."""
    known = builtin_shares() if shares is None else shares
    return PowerCurve(gpu, known.board(gpu), known.clock, known.server)


def replica_power(gpu: GpuSpec, *, gpus: int, level: float = FULL_CLOCK) -> ReplicaPower:
    curve = power_curve(gpu)
    standing_w, busy = curve.standing_w(level), curve.busy_w(level)
    servers_w = curve.server_w(busy.mid).mid * gpus
    return ReplicaPower(
        planned_idle_w=standing_w * gpus + curve.server_w(standing_w).mid * gpus,
        planned_busy_w=busy.mid * gpus + servers_w,
        limit_w=busy.high * gpus + servers_w,
    )
