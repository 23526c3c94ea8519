"""Demand series cut into the periods of a horizon: how long the whole is, and what each period must serve."""

from collections.abc import Iterator, Sequence

from fleet.demand import DemandSeries
from fleet.documents import Violation

EVEN = 1e-6  # of a repeat: what steps in seconds may leave over


def longest_s(series: Sequence[DemandSeries | None]) -> float:
    """The length of the whole: that of the longest series; 0 where there is none."""
    return max((one.duration_s for one in series if one is not None), default=0.0)


def uneven_series(series: Sequence[DemandSeries | None]) -> Iterator[Violation]:
    """Per workload whose series does not go into the longest a whole number of times: where, and what is wrong."""
    whole_s = longest_s(series)
    for position, one in enumerate(series):
        times = 1.0 if one is None else whole_s / one.duration_s
        if one is not None and abs(times - round(times)) > EVEN:
            message = f"lasts {one.duration_s:g} s beside {whole_s:g} s of another workload, expected a whole fraction"
            yield ("workloads", position, "demand"), f"{message} of that: a horizon repeats the shorter one"


def highest_rates(series: DemandSeries, periods: int, *, over_s: float | None = None) -> tuple[float, ...]:
    """Per period the highest rate of any step that reaches into it: what must be served, not what is to be expected.

    The periods are equal parts of `over_s`, in which the series is repeated; without it, of the series itself.
    """
    length_s = (series.duration_s if over_s is None else over_s) / periods
    steps = len(series.rates_rps)
    twice = series.rates_rps * 2  # a period that is shorter than the series may go over its end
    rates = []
    for period in range(periods):
        first = int(period * length_s / series.step_s + EVEN)
        last = int((period + 1) * length_s / series.step_s - EVEN)
        start = first % steps
        rates.append(max(twice[start : start + min(steps, max(1, last - first + 1))]))
    return tuple(rates)
