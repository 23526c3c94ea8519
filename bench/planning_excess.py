"""Where the cost of continuous planning over a clairvoyant planner comes from, one source after the other.

Each row replaces one part of the planning loop of `bench.continuous_planning` by what only hindsight has; the last
two are the loop itself.  All have the same warm-up and whole replicas.  Requests have one size, so their mix costs
nothing.

    clairvoyant, 5 % short    clairvoyant too, for so much less than the demand that 5 % of the windows are short
    knows the mean rate       each window's 95 % quantile over other draws of the same mean rates; what is left is the
                              noise of arrivals, which no planner knows (ServeGen alone: its mean rates are known)
    level in hindsight        the forecast's quantile with the one level that leaves 5 % short, and no stability rule
    planned level             the forecast's quantile at the level of the loop, and no stability rule
    planning loop             the whole loop, with its growth margin, band and patience
    rules before              the loop with the margin, band and patience of its first release
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from bench.clairvoyant import clairvoyant
from bench.continuous_planning import (
    DAY,
    HISTORY,
    QUANTILE,
    REPLICAS,
    SETTINGS,
    UTILISATION,
    WARM_UP,
    WINDOW_S,
    Day,
    days,
    fleetwright,
    minutes,
    replicas_for,
    scored,
    scores,
)
from bench.demand_series import REPORT, Floats, client_steps, demands, modelled
from bench.harness import Row
from planner.forecast import ForecastState, forecast, update

DRAWS = 40
LEVELS = (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, SETTINGS.horizon_quantile, 0.95, 0.98)
FIRST_RULES = replace(SETTINGS, margin=0.02, band=0.05, patience=6)


def run() -> list[Row]:
    return parts(REPORT)


def parts(part: str) -> list[Row]:
    return [{"trace": day.trace, "part": name} | row for day in days(part) for name, row in _parts(day, part)]


def _parts(day: Day, part: str) -> Iterator[tuple[str, Row]]:
    yield "clairvoyant, 5 % short", _short_clairvoyant(day)
    if (draws := _draws(day, part)) is not None:
        yield "knows the mean rate", scored(day, highest_ahead(np.quantile(draws, QUANTILE, axis=0)))
    levels = _levels(day)
    by_level = {level: scored(day, _counts(levels[:, n])) for n, level in enumerate(LEVELS)}
    short = [by_level[level]["short_windows_percent"] for level in LEVELS]
    if short[0] > 100 * (1 - QUANTILE) > short[-1]:
        level = float(np.interp(-100 * (1 - QUANTILE), [-each for each in short], LEVELS))
        between = [np.interp(level, LEVELS, row) for row in levels]
        yield f"level in hindsight, {level:.2f}", scored(day, _counts(between))
    planned = SETTINGS.horizon_quantile
    yield f"planned level, {planned:.2f}", by_level[planned]
    yield "planning loop", scored(day, fleetwright(day.needed))
    yield "rules before", scored(day, fleetwright(day.needed, settings=FIRST_RULES))


def _short_clairvoyant(day: Day) -> Row:
    """The clairvoyant counts for the largest part of the demand that leaves 5 % of the windows short."""
    row: Row = {}
    for part in np.arange(0.97, 1.0, 0.001):
        best = clairvoyant((part * day.needed).tolist(), capacity=UTILISATION, warmup=WARM_UP)
        row = scores(day, ready=best.serving, paid=best.paid)
        if row["short_windows_percent"] <= 100 * (1 - QUANTILE):
            break
    return row


def highest_ahead(rates: Floats) -> list[int]:
    """The count after each window for the highest rate until the next decision's replicas are warm."""
    later = np.concatenate([rates[1:], np.full(WARM_UP + 1, rates[-1])])
    highest = np.lib.stride_tricks.sliding_window_view(later, WARM_UP + 1).max(axis=1)
    return _counts(highest[: len(rates)])


def _counts(rates: Sequence[float] | Floats) -> list[int]:
    return [max(1, int(count)) for count in replicas_for(np.asarray(rates, dtype=float))]


def _levels(day: Day) -> Floats:
    """The forecast of the loop after each window, at each level."""
    state, found = ForecastState(window_s=WINDOW_S), []
    for t, rate in enumerate(day.needed.tolist()):
        state = update(state, rate=rate, at_s=WINDOW_S * (t + 1))
        found.append(forecast(state, horizon_s=SETTINGS.horizon_s, quantiles=LEVELS))
    return np.array(found)


def _draws(day: Day, part: str) -> Floats | None:
    """Other arrivals with the same mean rates, in the windows and the unit of the day."""
    kept = slice(DAY - HISTORY, 2 * DAY)
    if day.trace == "ServeGen clients, modelled":
        steps = [each[: 2 * 144] for each in client_steps(part)]
        draws = np.array(
            [
                np.sum([modelled(each, seed=1_000 * n + i) for i, each in enumerate(steps)], axis=0)
                for n in range(1, DRAWS + 1)
            ]
        )
        rates = draws.reshape(DRAWS, -1, 2).mean(axis=2)[:, kept]
    elif day.trace.startswith("ServeGen"):
        series = next(each.rates for each in demands(part) if each.group == day.trace)
        rates = np.array([minutes(series[: 2 * 144 + 1], seed=1_000 + n)[kept] for n in range(DRAWS)])
    else:
        return None
    scaled: Floats = rates * REPLICAS / rates.mean()
    return scaled
