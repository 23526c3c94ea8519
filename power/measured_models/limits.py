"""Fits on training under power limits (Zeus): the power at a lower clock, and the time under a limit.

    power / power at the full limit = f + (1 - f) * c^a        time / time at the full limit = 1 + k * (1/c - 1)

Zeus recorded no clocks.  `k` is chosen so that POLCA's published point fits, and converts time to clock; `f` and `a`
refer to that clock.  Time by limit combines both and needs no such anchor; the errors are its errors.
"""

import datetime as dt
from collections.abc import Sequence

import numpy as np

from power.arrays import Floats
from power.measured_models.document import ClockShares, LimitSweep
from power.measured_models.points import LimitPoint, error_of, grouped, spread_of

COMPUTE_BOUND = 0.85  # share of the limit that a job draws unlimited, for its limit to be a limit at all
# POLCA (arXiv 2308.12908): inference on A100 at 1110 of 1410 MHz loses at most 7 % of performance.
POLCA_CLOCK, POLCA_SPEED = 1110 / 1410, 0.93
SENSITIVITY = (1 / POLCA_SPEED - 1) / (1 / POLCA_CLOCK - 1)
FLOORS, EXPONENTS = np.arange(0.0, 0.7, 0.01), np.arange(1.0, 4.0, 0.05)
MIN_POINTS = 3


class Sweep:
    """Speed, power and power limit, each over its own at the full limit, of jobs that draw nearly all of it."""

    def __init__(self, points: Sequence[LimitPoint]) -> None:
        kept: list[tuple[LimitPoint, LimitPoint]] = []
        for job in grouped(points, lambda one: (one.gpu, one.job)).values():
            full = max(job, key=lambda one: one.limit_w)
            if full.power_w > COMPUTE_BOUND * full.limit_w:
                kept += [(one, full) for one in job]
        self.boards = np.array([one.gpu for one, _ in kept])
        self.tasks = np.array([one.task for one, _ in kept])
        self.limits_w = np.array([one.limit_w for one, _ in kept])
        self.full_limit_w = {gpu: max(one.limit_w for one in same) for gpu, same in grouped(points, _gpu).items()}
        self.jobs = {gpu: len({one.job for one in same}) for gpu, same in grouped((o for o, _ in kept), _gpu).items()}
        self.slowdowns = np.array([one.time_s / full.time_s for one, full in kept])
        self.clocks = 1 / (1 + np.maximum(0.0, self.slowdowns - 1) / SENSITIVITY)
        self.shares = np.array([one.power_w / full.power_w for one, full in kept])
        self.allowed = np.minimum(1.0, np.array([one.limit_w / full.power_w for one, full in kept]))


def _gpu(point: LimitPoint) -> str:
    return point.gpu


def clock_shares(sweep: Sweep, *, cited: ClockShares, source: str, date: dt.date) -> ClockShares:
    """Fit one curve for all boards; the sensitivities stay as cited."""
    floor, exponent = _curve(sweep.clocks, sweep.shares)
    found = {
        "floor_share": round(floor, 4),
        "exponent": round(exponent, 4),
        "spread": spread_of(sweep.shares / _left(sweep.clocks, floor, exponent)),
        "source": source,
        "date": date,
    }
    return cited.model_copy(update=found)


def limit_sweeps(sweep: Sweep, *, source: str, date: dt.date) -> list[LimitSweep]:
    """Fit each board type by itself, with the errors of held-out tasks."""
    enough = [gpu for gpu in sweep.jobs if np.sum(sweep.boards == gpu) >= MIN_POINTS]
    return [_one(sweep, gpu, source, date) for gpu in sorted(enough)]


def _one(sweep: Sweep, gpu: str, source: str, date: dt.date) -> LimitSweep:
    mine = sweep.boards == gpu
    floor, exponent = _curve(sweep.clocks[mine], sweep.shares[mine])
    power, time = _held_out(sweep, mine)
    others = ~mine if np.any(~mine) else mine
    pooled = _left(sweep.clocks[mine], *_curve(sweep.clocks[others], sweep.shares[others]))
    return LimitSweep(
        name=gpu,
        full_limit_w=sweep.full_limit_w[gpu],
        floor_share=round(floor, 4),
        exponent=round(exponent, 4),
        lowest_clock=round(float(sweep.clocks[mine].min()), 4),
        power_error=error_of(power, sweep.shares[mine]),
        pooled_power_error=error_of(pooled, sweep.shares[mine]),
        time_error=error_of(time, sweep.slowdowns[mine]),
        jobs=sweep.jobs[gpu],
        source=source,
        date=date,
    )


def _held_out(sweep: Sweep, mine: Floats) -> tuple[Floats, Floats]:
    """Return power by speed and time by limit, each task predicted from the board's other tasks, or from all."""
    power, time = np.empty(len(mine)), np.empty(len(mine))
    for task in dict.fromkeys(sweep.tasks[mine]):
        held = mine & (sweep.tasks == task)
        rest = mine & ~held if np.any(mine & ~held) else ~held if np.any(~held) else held
        floor, exponent = _curve(sweep.clocks[rest], sweep.shares[rest])
        lowest = sweep.clocks[rest].min()
        power[held] = _left(sweep.clocks[held], floor, exponent)
        time[held] = 1 + SENSITIVITY * (1 / _clock_leaving(sweep.allowed[held], floor, exponent, lowest) - 1)
    return power[mine], time[mine]


def _left(clocks: Floats, floor: float, exponent: float) -> Floats:
    return np.asarray(floor + (1 - floor) * clocks**exponent)


def _clock_leaving(shares: Floats, floor: float, exponent: float, lowest: float) -> Floats:
    above = np.maximum(0.0, (shares - floor) / (1 - floor))
    return np.maximum(lowest, above ** (1 / exponent))


def _curve(clocks: Floats, shares: Floats) -> tuple[float, float]:
    """Return `f` and `a` with the least squares of relative errors."""
    powers = clocks[None, :] ** EXPONENTS[:, None]
    off = [np.sum((shares / (floor + (1 - floor) * powers) - 1) ** 2, axis=1) for floor in FLOORS]
    floor_at, exponent_at = np.unravel_index(int(np.argmin(off)), (len(FLOORS), len(EXPONENTS)))
    return float(FLOORS[floor_at]), float(EXPONENTS[exponent_at])
