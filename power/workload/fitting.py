"""Load profiles from measured rates.

    course   FLOOR + (1 - FLOOR) * min(1, rate / peak), rates smoothed over SMOOTH_S, peak their CLIP quantile
    law      the course's levels at even shares of the time; its normal scores regressed on the harmonics by least
             squares; the residual: standard deviation, and the correlation time from the correlation at one hour

The floor is load that does not follow the day; without it a row is half idle and easily filled.
"""

from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

from fleet.csv_columns import CsvTable, names_of
from fleet.documents import RuleError
from fleet.errors import DocumentError, Problem
from power.arrays import Floats
from power.workload.load_profile import Curve, Harmonic, Quantile, Shape, smoothed_covariance

CLIP = 0.995  # of the smoothed rates: of a fortnight the 100 minutes above it count as the peak
FLOOR = 0.40  # of the peak is there at any time; a choice, and a hard one: the mean rises from 0.48 to 0.69
SMOOTH_S = 1800.0
PERIODS_S = (86_400.0, 43_200.0, 604_800.0, 302_400.0)  # day, half day, week, half week
SHARES = (0.0, 0.01, *(at / 20 for at in range(1, 19)), 0.925, 0.95, 0.97, 0.98, 0.985, 0.99, 0.995, 1.0)
LAG_S = 3600.0
MAX_WINDOWS = 1_000_000
TIMES, RATES = ("window_start_s", "time_s"), ("total_rate_rps", "rate_rps", "rate")


def read_rates(text: str, *, name: str) -> tuple[Floats, float]:
    """Return the rates and the seconds between them, from a CSV file of windows: its start in seconds, and its rate."""
    table = CsvTable.read(text, name=name, max_rows=MAX_WINDOWS)
    header = table.header
    time = next((header.index(column) for column in TIMES if column in header), None)
    rate = next((header.index(column) for column in RATES if column in header), None)
    if time is None or rate is None:
        expected = f"expected one of {', '.join(TIMES)} and one of {', '.join(RATES)}"
        raise DocumentError(
            name=name, problems=[Problem("", f"unknown header {','.join(header)[:200]!r}, {expected}", 1)]
        )
    return _even([_window(row, time, rate, name, line) for line, row in table.lines], name)


def is_rates(text: str) -> bool:
    """Return whether the header is one of rates rather than of requests."""
    return not set(RATES).isdisjoint(names_of(text.partition("\n")[0].split(",")))


def course(rates_rps: Floats, step_s: float) -> Curve:
    smooth = _smoothed(rates_rps, step_s)
    peak = float(np.quantile(smooth, CLIP))
    if peak <= 0:
        raise RuleError([(("rates",), "are 0 throughout, expected some load")])
    levels = FLOOR + (1 - FLOOR) * np.minimum(smooth / peak, 1.0)
    return Curve(step_s, np.append(levels, levels[0]))


def fitted(rates_rps: Floats, step_s: float, *, name: str, source: str = "") -> Shape:
    scores = _normal_scores(_smoothed(rates_rps, step_s))
    time_s = step_s * np.arange(len(scores))
    angles = [2 * np.pi * time_s / period for period in PERIODS_S]
    columns = np.stack([wave(angle) for angle in angles for wave in (np.cos, np.sin)], axis=1)
    weights = np.linalg.lstsq(columns, scores, rcond=None)[0]
    left = scores - columns @ weights
    lag = max(1, round(LAG_S / step_s))
    correlation = float(np.corrcoef(left[:-lag], left[lag:])[0, 1])
    levels = np.quantile(course(rates_rps, step_s).levels, SHARES)
    return Shape(
        name=name,
        step_s=step_s,
        levels=tuple(
            Quantile(share=share, level=round(float(level), 4)) for share, level in zip(SHARES, levels, strict=True)
        ),
        harmonics=tuple(
            Harmonic(period_s=period, cosine=round(float(cosine), 4), sine=round(float(sine), 4))
            for period, cosine, sine in zip(PERIODS_S, weights[::2], weights[1::2], strict=True)
        ),
        wander=round(float(left.std()), 4),
        wander_s=round(_correlation_time_s(correlation, lag=lag, step_s=step_s)),
        smooth_s=SMOOTH_S,
        source=source,
    )


def _smoothed(rates_rps: Floats, step_s: float) -> Floats:
    width = _width(step_s)
    padded = np.pad(rates_rps, width // 2, mode="edge")
    return np.convolve(padded, np.full(width, 1 / width), "valid")


def _width(step_s: float) -> int:
    return max(1, (round(SMOOTH_S / step_s) - 1) // 2 * 2 + 1)  # odd, so that it is symmetric


def _correlation_time_s(correlation: float, *, lag: int, step_s: float) -> float:
    """Return the correlation time of the process that, smoothed, has this correlation at the lag."""
    width = _width(step_s)
    low, high = step_s / 10, 1e7
    for _ in range(60):
        middle = float(np.sqrt(low * high))
        kept = float(np.exp(-step_s / middle))
        found = smoothed_covariance(kept, width=width, lag=lag) / smoothed_covariance(kept, width=width, lag=0)
        low, high = (middle, high) if found < correlation else (low, middle)
    return low


def _normal_scores(values: Floats) -> Floats:
    ranks = np.argsort(np.argsort(values, kind="stable"), kind="stable")
    normal = NormalDist()
    return np.array([normal.inv_cdf((rank + 0.5) / len(values)) for rank in ranks.tolist()])


def _window(row: Sequence[str], time: int, rate: int, name: str, line: int) -> tuple[float, float]:
    try:
        start_s, rate_rps = float(row[time]), float(row[rate])
    except (ValueError, IndexError):
        start_s = rate_rps = float("nan")
    if not (np.isfinite(start_s) and np.isfinite(rate_rps) and rate_rps >= 0):
        message = f"expected a start in seconds and a rate of at least 0, got {','.join(row)[:80]!r}"
        raise DocumentError(name=name, problems=[Problem("", message, line)])
    return start_s, rate_rps


def _even(windows: list[tuple[float, float]], name: str) -> tuple[Floats, float]:
    if not 2 <= len(windows) <= MAX_WINDOWS:
        message = f"has {len(windows)} windows, expected 2 to {MAX_WINDOWS:,}"
        raise DocumentError(name=name, problems=[Problem("", message)])
    table = np.array(windows)
    steps = np.diff(table[:, 0])
    if steps[0] <= 0 or not np.allclose(steps, steps[0]):
        message = "windows must follow one another at even steps"
        raise DocumentError(
            name=name, problems=[Problem("", message, int(np.argmax(~np.isclose(steps, steps[0]))) + 3)]
        )
    return table[:, 1].copy(), float(steps[0])
