"""Quality of the power forecasts of a row.

Short horizon: uncapped rows of 52 servers from the simulator, two days, the second one scored, `SEEDS` each: the POLCA
mix, the Azure code trace (if the shared data is present) and a row of which a quarter trains.  Inputs are readings;
readings and counts of servers by phase; and also the remaining time of the prompts in flight.  A figure
`..._over_BASELINE` is the pinball loss over that of a baseline: below 1 the forecast wins.  Baselines give quantiles of
the highest rise, fitted again every hour from the day before and from outcomes known by then:

    rises of the day   persistence: the quantile of the last day's rises, independent of the current readings
    autoregression     least squares on the last readings, and the normal distribution of the residuals
    Holt               level and trend by exponential smoothing, and the normal distribution of the residuals

Day ahead: steps of 10 minutes from all days before, the last week of each series scored, against the course of
yesterday and of last week with quantiles of their own past errors.  Series: ServeGen's rates (14 days) as the watts of
a row whose power is linear in the rate, and the built-in load shape (28 days, `SEEDS`).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from bench.harness import Row, text
from power.forecast import Steps, next_day
from power.forecast.metrics import highest_rise_w, replayed, score
from power.forecast.state_layout import LAGS, QUANTILES
from power.policies.registry import policy_named
from power.server_model import ServerModel
from power.simulator import Outcome, RowSpec, simulate
from power.workload.fitting import read_rates
from power.workload.load_profile import builtin_shape
from power.workload.sources import Sources, read_sources

Floats = npt.NDArray[np.float64]

SEEDS = 5
SERVERS, DAYS, STEP_S = 52, 2, 2.0
SCORED_FROM = 43_200  # readings: the second day
BLOCK = 10_800  # a quarter of a day
UNLIMITED_W = 1e9
DAY_QUANTILES = (0.5, 0.9, 0.99)
SERVEGEN = tuple(f"servegen_m-{size}_rate_600s.csv.gz" for size in ("large", "mid", "small"))
DAY, HOUR = 43_200, 1_800  # readings each 2 s
ORDER = 5
LEVEL, TREND = 0.5, 0.05  # Holt's: plain choices, not tuned on these rows
AZURE = "AzureLLMInferenceTrace_code_2023.csv.gz"


@dataclass(frozen=True, slots=True)
class UncappedRow:
    watts: Floats
    drivers: dict[str, list[list[float]] | None]


def run() -> list[Row]:
    return [*chain.from_iterable(_short(name, *given) for name, given in _workloads()), *_days()]


def _workloads() -> Iterator[tuple[str, tuple[Sources, float]]]:
    yield "POLCA mix", (Sources(), 0.0)
    if (trace := text("power", AZURE)) is not None:
        yield "Azure code", (read_sources([(AZURE, trace)]), 0.0)
    yield "a quarter trains", (Sources(), 0.25)


def _short(name: str, sources: Sources, training_share: float) -> Iterator[Row]:
    rows = [_uncapped_row(sources, training_share, seed) for seed in range(SEEDS)]
    for known in rows[0].drivers:
        scored = [_scored(row, known) for row in rows]
        for i, lag in enumerate(LAGS):
            yield {"case": name, "known": known, "horizon_s": lag * STEP_S, **_mean([each[i] for each in scored])}


def _uncapped_row(sources: Sources, training_share: float, seed: int) -> UncappedRow:
    model = sources.model()
    work = sources.work(servers=SERVERS, days=DAYS, seed=seed, training_share=training_share)
    spec = RowSpec(budget_w=UNLIMITED_W, model=model, together=None if sources.traces else 1)
    outcome = simulate(spec, work, policy=policy_named("none"), seed=seed)
    return UncappedRow(outcome.readings_w, _drivers(outcome, model))


def _drivers(outcome: Outcome, model: ServerModel) -> dict[str, list[list[float]] | None]:
    """Return, at the end of each reading, the power above idle of tokens and prompts, and of the prompts in flight."""
    requests = outcome.requests
    start, first, finish = (_or_never(at) for at in (requests.start_s, requests.first_s, requests.finish_s))
    edges = STEP_S * np.arange(1, len(outcome.readings_w) + 1, dtype=np.float64)
    prompt_w = (model.prompt_w() - model.idle_w) * (_until(start, edges) - _until(first, edges))
    token_w = (model.token_w() - model.idle_w) * (_until(first, edges) - _until(finish, edges))
    counts = np.column_stack([token_w, prompt_w])
    left_w = (model.prompt_w() - model.idle_w) / STEP_S * _left_s(start, first, len(edges))
    return {
        "readings": None,
        "and counts": counts.tolist(),
        "and prompt lengths": np.column_stack([counts, left_w]).tolist(),
    }


def _or_never(times: Floats) -> Floats:
    return np.where(np.isnan(times), np.inf, times)


def _until(times: Floats, edges: Floats) -> Floats:
    """How many have happened by each edge."""
    return np.searchsorted(np.sort(times), edges, side="right").astype(np.float64)


def _left_s(start: Floats, first: Floats, readings: int) -> Floats:
    """Seconds of the next reading that prompts in flight at the end of each will still take."""
    started = start[np.isfinite(first)]
    until = first[np.isfinite(first)]
    left = np.zeros(readings)
    reading = np.ceil(started / STEP_S).astype(np.int64) - 1
    while len(reading):
        edge = (reading + 1) * STEP_S
        held = (edge < until) & (reading < readings)
        reading, until = reading[held], until[held]
        now = reading >= 0
        np.add.at(left, reading[now], np.minimum(until[now] - edge[held][now], STEP_S))
        reading = reading + 1
    return left


def _scored(row: UncappedRow, known: str) -> list[dict[str, float]]:
    at_s = STEP_S * np.arange(len(row.watts), dtype=np.float64)
    forecast = replayed(at_s, row.watts, drivers_w=row.drivers[known])
    return [_of_lag(row.watts, forecast[:, i], lag) for i, lag in enumerate(LAGS)]


def _of_lag(watts: Floats, forecast: Floats, lag: int) -> dict[str, float]:
    outcome = highest_rise_w(watts, lag)
    scored = slice(SCORED_FROM, len(outcome))
    ours = [score(forecast[scored, i], outcome[scored], quantile=share) for i, share in enumerate(QUANTILES)]
    figures = {f"coverage_{each.quantile:g}": each.coverage for each in ours}
    figures["min_coverage_0.99_of_6_h"] = min(
        score(forecast[at : at + BLOCK, 2], outcome[at : at + BLOCK], quantile=0.99).coverage
        for at in range(SCORED_FROM, len(outcome) - BLOCK + 1, BLOCK)
    )
    for share, one in ((0.99, ours[2]), (0.999, ours[3])):
        figures[f"mean_rise_{share:g}_of_peak"] = one.mean_w / float(watts.max())
    for name, baseline in (("rises_of_the_day", _rises_of_the_day), ("ar", _autoregression), ("holt", _holt)):
        theirs = baseline(watts, lag)
        other = score(theirs[scored, 2], outcome[scored], quantile=QUANTILES[2])
        figures[f"pinball_0.99_over_{name}"] = ours[2].pinball_w / other.pinball_w
    return figures


def _mean(scored: Sequence[dict[str, float]]) -> dict[str, float]:
    return {
        name: float((np.min if name.startswith("min_") else np.mean)([each[name] for each in scored]))
        for name in scored[0]
    }


def _days() -> Iterator[Row]:
    for name in SERVEGEN:
        if (table := text("power", name)) is not None:
            rates, _ = read_rates(table, name=name)
            yield _day_row(name.removesuffix("_rate_600s.csv.gz"), [_watts(rates / np.quantile(rates, 0.995))])
    shapes = [builtin_shape().drawn(days=28, rng=np.random.default_rng(seed)) for seed in range(SEEDS)]
    times = 300.0 + 600.0 * np.arange(28 * 144, dtype=np.float64)
    yield _day_row("built-in shape", [_watts(curve.at(times)) for curve in shapes])


def _watts(levels: Floats) -> Floats:
    """A row of the POLCA mix: from idle to what its servers draw at the highest level, on average."""
    return SERVERS * (2_065.0 + 2_150.0 * np.clip(levels, 0, 1))


def _day_row(name: str, series: Sequence[Floats]) -> Row:
    found_scores: dict[str, list[Floats]] = {"ours": [], "yesterday": [], "last_week": []}
    covered = []
    for watts in series:
        days = watts.reshape(-1, 144)
        for day in range(len(days) - 7, len(days)):
            past, truth = days[:day], days[day]
            ours = next_day(Steps(600.0, past.ravel()), quantiles=DAY_QUANTILES).watts
            covered.append([np.mean(truth <= ours[:, i]) for i in range(len(DAY_QUANTILES))])
            found_scores["ours"].append(_pinballs(ours, truth))
            found_scores["yesterday"].append(_pinballs(_naive(past, 1), truth))
            found_scores["last_week"].append(_pinballs(_naive(past, min(7, day - 2)), truth))
    losses = {method: np.mean(each, axis=0) for method, each in found_scores.items()}
    mean_w = float(np.mean([watts.mean() for watts in series]))
    return {
        "case": f"day ahead, {name}",
        **{f"coverage_{q:g}": float(share) for q, share in zip(DAY_QUANTILES, np.mean(covered, axis=0), strict=True)},
        "mean_error_of_mean": 2 * float(losses["ours"][0]) / mean_w,
        **{
            f"pinball_{q:g}_over_{method}": float(losses["ours"][i] / losses[method][i])
            for method in ("yesterday", "last_week")
            for i, q in enumerate(DAY_QUANTILES)
        },
    }


def _naive(past: Floats, ago: int) -> Floats:
    """Return a past day's course, with quantiles of the past errors of such courses."""
    off = (past[ago:] - past[:-ago]).ravel()
    naive: Floats = past[-ago][:, None] + np.quantile(off, DAY_QUANTILES)[None, :]
    return naive


def _pinballs(forecast: Floats, truth: Floats) -> Floats:
    return np.array([score(forecast[:, i], truth, quantile=q).pinball_w for i, q in enumerate(DAY_QUANTILES)])


def _rises_of_the_day(watts: Floats, lag: int) -> Floats:
    return _each_hour(watts, lag, lambda outcome, known, _: np.quantile(outcome[known], QUANTILES))


def _autoregression(watts: Floats, lag: int) -> Floats:
    before = [np.concatenate([np.full(i, watts[0]), watts[: len(watts) - i]]) for i in range(ORDER)]
    features = np.column_stack([np.ones(len(watts)), *before])

    def fitted(outcome: Floats, known: slice, hour: slice) -> Floats:
        weights, *_ = np.linalg.lstsq(features[known], outcome[known], rcond=None)
        lines: Floats = (features[hour] @ weights)[:, None] + _normally(outcome[known] - features[known] @ weights)
        return lines

    return _each_hour(watts, lag, fitted)


def _holt(watts: Floats, lag: int) -> Floats:
    """Level and trend: their prediction of the reading after the lag, and a constant for the highest before it."""
    level, trend, forecast = float(watts[0]), 0.0, np.empty(len(watts))
    for i, row_w in enumerate(watts.tolist()):
        before = level
        level = LEVEL * row_w + (1 - LEVEL) * (level + trend)
        trend = TREND * (level - before) + (1 - TREND) * trend
        forecast[i] = level + lag * trend - row_w
    return _each_hour(
        watts, lag, lambda outcome, known, hour: forecast[hour, None] + _normally(outcome[known] - forecast[known])
    )


def _each_hour(watts: Floats, lag: int, fitted: Callable[[Floats, slice, slice], Floats]) -> Floats:
    """[reading, quantile]: a fit of the outcomes known so far of the day before, applied to the hour."""
    outcome = highest_rise_w(watts, lag)
    found = np.full((len(watts), len(QUANTILES)), np.nan)
    for start in range(HOUR, len(watts), HOUR):
        known = slice(max(0, start - DAY), start - lag)
        found[start : start + HOUR] = fitted(outcome, known, slice(start, start + HOUR))
    return found


def _normally(off: Floats) -> Floats:
    return float(off.mean()) + float(off.std()) * np.array([NormalDist().inv_cdf(each) for each in QUANTILES])
