"""`fleetwright power forecast FILE`: forecast the power of a row from its readings."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from api.cli.common.console import note
from api.cli.common.files import name_of, read_text, violations_of
from api.cli.common.lazy_groups import new_app
from api.cli.common.output import Format, FormatOption, print_json
from api.cli.common.tables import Column, Table, print_table
from power.forecast import DayForecast, Readings, next_day, read_power
from power.forecast.history import DAY_S
from power.forecast.metrics import highest_rise_w, replayed, score
from power.forecast.state_layout import LAGS, QUANTILES

MINUTE_S = 60.0
SHORT_STEP_S = 60.0  # longest gap between two readings for a short-term forecast
WARM = 600  # readings before forecasts are scored
NO_SCORES: dict[str, float | None] = {f"{quantile:g}": None for quantile in QUANTILES}

FileArgument = Annotated[
    Path, typer.Argument(metavar="FILE", help="CSV of time and watts, gzipped or not; - reads stdin.")
]


class Ahead(StrEnum):
    READINGS = "readings"
    DAY = "day"


class Of(StrEnum):
    MEAN = "mean"
    PEAK = "peak"


app = new_app()


@app.command()
def forecast(
    file: FileArgument,
    ahead: Annotated[Ahead, typer.Option(help="The next readings, or the next day.")] = Ahead.READINGS,
    step_min: Annotated[
        float, typer.Option("--step-min", metavar="M", help="With --ahead day: minutes of a step, 5 to 15 are usual.")
    ] = 10.0,
    of: Annotated[Of, typer.Option(help="With --ahead day: the mean or the highest reading of each step.")] = Of.MEAN,
    output: FormatOption = Format.TABLE,
) -> None:
    """Forecast the power of a row with quantiles.

    FILE has a column of times (seconds, or ISO 8601) and one of watts.  For the next readings the result has, for each
    horizon, how far the highest reading may exceed the last one, and the coverage of such forecasts on FILE.
    """
    name = name_of(file)
    readings = read_power(read_text(file), name=name)
    if ahead is Ahead.READINGS:
        _print_readings(readings, output)
        return
    with violations_of(name):
        day = next_day(readings.steps(step_min * MINUTE_S, of=of.value))
    _print_day(day, output)


def _print_readings(readings: Readings, output: Format) -> None:
    step_s = min(SHORT_STEP_S, readings.step_s)
    forecasts = replayed(readings.at_s, readings.watts, step_s=step_s)
    last_w = float(readings.watts[-1])
    rows = [_horizon(readings, forecasts, i, step_s) for i in range(len(LAGS))]
    if output is Format.JSON:
        print_json({"at_s": float(readings.at_s[-1]), "row_w": last_w, "step_s": step_s, "horizons": rows})
        return
    columns = [Column("HORIZON", lambda horizon_s: f"{horizon_s:g} s", right=True)]
    columns += [Column(f"{quantile:g}", lambda watts: f"+{watts:,.0f} W", right=True) for quantile in QUANTILES]
    values: list[list[Any]] = [[row["horizon_s"], *row["rise_w"].values()] for row in rows]
    scored = rows[0]["coverage"] is not None
    if scored:
        columns += [Column(f"BELOW {quantile:g}", "{:.2%}".format, right=True) for quantile in QUANTILES]
        values = [[*known, *(row["coverage"] or NO_SCORES).values()] for known, row in zip(values, rows, strict=True)]
    print_table(Table(columns, values))
    note(f"watts by which the highest reading of the horizon may exceed the last one, {last_w:,.0f}")
    if scored:
        note(f"below: share of past outcomes below the forecast, of {len(readings.watts):,} readings")


def _horizon(readings: Readings, forecasts: Any, lag: int, step_s: float) -> dict[str, Any]:
    """Return the current rises, and the share of past outcomes below their forecasts."""
    outcome = highest_rise_w(readings.watts, LAGS[lag]) if len(readings.watts) > LAGS[lag] else np.empty(0)
    enough = len(outcome) > 2 * WARM
    return {
        "horizon_s": LAGS[lag] * step_s,
        "rise_w": {f"{q:g}": max(0.0, float(forecasts[-1, lag, i])) for i, q in enumerate(QUANTILES)},
        "coverage": {
            f"{q:g}": score(forecasts[WARM : len(outcome), lag, i], outcome[WARM:], quantile=q).coverage
            for i, q in enumerate(QUANTILES)
        }
        if enough
        else None,
    }


def _print_day(day: DayForecast, output: Format) -> None:
    names = [f"{quantile:g}" for quantile in day.quantiles]
    begins_s = [(day.second_of_day + i * day.step_s) % DAY_S for i in range(len(day.watts))]
    if output is Format.JSON:
        steps = [
            {"second_of_day": begin_s, "watts": dict(zip(names, map(float, watts), strict=True))}
            for begin_s, watts in zip(begins_s, day.watts, strict=True)
        ]
        print_json({"step_s": day.step_s, "past_days": day.days, "steps": steps})
        return
    columns = [Column("FROM", lambda begin_s: f"{int(begin_s // 3600):02d}:{int(begin_s % 3600 // 60):02d}")]
    columns += [Column(name, "{:,.0f} W".format, right=True) for name in names]
    print_table(
        Table(columns, [[begin_s, *watts] for begin_s, watts in zip(begins_s, day.watts.tolist(), strict=True)])
    )
    note(f"watts by step, from {day.days} past days")
