"""`fleetwright power forecast FILE`: forecast the power of a row from its readings."""

from datetime import UTC
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from api.cli.common.console import note
from api.cli.common.files import build_model, name_of, read_text, violations_of
from api.cli.common.lazy_groups import new_app
from api.cli.common.options import ExplicitRemoteOptions
from api.cli.common.tables import Column, Table, print_table
from power.forecast import Readings, read_power
from power.forecast.report import Ahead, DayAhead, ForecastRequest, ReadingsForecast, day_ahead, next_readings
from power.forecast.state_layout import QUANTILES

NO_SCORES: dict[str, float | None] = {f"{quantile:g}": None for quantile in QUANTILES}

FileArgument = Annotated[
    Path, typer.Argument(metavar="FILE", help="CSV of time and watts, gzipped or not; - reads stdin.")
]


class Of(StrEnum):
    MEAN = "mean"
    PEAK = "peak"


app = new_app()


@app.command()
def forecast(
    service: ExplicitRemoteOptions,
    file: FileArgument,
    ahead: Annotated[Ahead, typer.Option(help="The next readings, or the next day.")] = Ahead.READINGS,
    step_min: Annotated[
        float, typer.Option("--step-min", metavar="M", help="With --ahead day: minutes of a step, 5 to 15 are usual.")
    ] = 10.0,
    of: Annotated[Of, typer.Option(help="With --ahead day: the mean or the highest reading of each step.")] = Of.MEAN,
) -> None:
    """Forecast the power of a row with quantiles.

    FILE has a column of times (seconds, or ISO 8601) and one of watts.  For the next readings the result has, for each
    horizon, how far the highest reading may exceed the last one, and the coverage of such forecasts on FILE.
    """
    name = name_of(file)
    readings = read_power(read_text(file), name=name)
    if service.url is not None:
        found = _forecast_remotely(readings, name, service, ahead=ahead, step_min=step_min, of=of)
    elif ahead is Ahead.READINGS:
        found = next_readings(readings)
    else:
        with violations_of(name):
            found = day_ahead(readings, step_min=step_min, of=of.value)
    if service.printed(found):
        return
    if isinstance(found, DayAhead):
        _print_day(found)
    else:
        _print_readings(found, count=len(readings.watts))


def _forecast_remotely(
    readings: Readings, name: str, service: ExplicitRemoteOptions, *, ahead: Ahead, step_min: float, of: Of
) -> ReadingsForecast | DayAhead:
    request = build_model(
        ForecastRequest,
        name,
        at_s=tuple(readings.at_s.tolist()),
        watts=tuple(readings.watts.tolist()),
        start=readings.start if readings.start is None or readings.start.tzinfo else readings.start.replace(tzinfo=UTC),
        ahead=ahead,
        step_min=step_min,
        of=of.value,
    )
    with service.connect() as client:
        return client.forecast_power(request)


def _print_readings(found: ReadingsForecast, *, count: int) -> None:
    columns = [Column("HORIZON", lambda horizon_s: f"{horizon_s:g} s", right=True)]
    columns += [Column(f"{quantile:g}", lambda watts: f"+{watts:,.0f} W", right=True) for quantile in QUANTILES]
    values: list[list[Any]] = [[each.horizon_s, *each.rise_w.values()] for each in found.horizons]
    scored = found.horizons[0].coverage is not None
    if scored:
        columns += [Column(f"BELOW {quantile:g}", "{:.2%}".format, right=True) for quantile in QUANTILES]
        values = [
            [*known, *(each.coverage or NO_SCORES).values()] for known, each in zip(values, found.horizons, strict=True)
        ]
    print_table(Table(columns, values))
    note(f"watts by which the highest reading of the horizon may exceed the last one, {found.row_w:,.0f}")
    if scored:
        note(f"below: share of past outcomes below the forecast, of {count:,} readings")


def _print_day(day: DayAhead) -> None:
    columns = [Column("FROM", lambda begin_s: f"{int(begin_s // 3600):02d}:{int(begin_s % 3600 // 60):02d}")]
    columns += [Column(name, "{:,.0f} W".format, right=True) for name in day.steps[0].watts]
    print_table(Table(columns, [[step.second_of_day, *step.watts.values()] for step in day.steps]))
    note(f"watts by step, from {day.past_days} past days")
