"""Fits on runs of equal requests (splitwise-sim's table): power and times of prompts and of tokens.

The mean power of a run mixes both phases: tokens draw (mean * whole - peak * prompt) / (whole - prompt).  The fit uses
runs that read prompts for less than a tenth of their time; the recorded means of longer ones are too low for the
whole run (docs/explanation/power/measured-models.md, 3).
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import median

import numpy as np

from power.measured_models.document import Engine, Error
from power.measured_models.points import RequestPoint, error_of, grouped, prompt_times, token_times

MAX_PROMPT_SHARE = 0.1  # of a run's time
FILLING_TOKENS = 1024  # from here on a prompt fills an A100
MAX_PROMPT_TOKENS = 8192  # longer is measured only as many short prompts, which attend to less
MAX_TOKENS_AT_ONCE = 16_384  # beyond, some runs of the table broke off
MIN_POINTS = 3


def engines_of(points: Sequence[RequestPoint], *, idle: Mapping[str, float]) -> list[Engine]:
    """Fit one engine for each model, board type and number of boards."""
    engines = grouped(points, lambda one: (one.gpu, one.model, one.gpus)).values()
    return [found for runs in engines if (found := _engine(runs, idle[runs[0].gpu])) is not None]


def _engine(runs: Sequence[RequestPoint], idle: float) -> Engine | None:
    lengths = _prompt_medians(runs)
    tokens = grouped((one for one in runs if _sound(one)), lambda one: one.batch)
    if len(lengths) < MIN_POINTS or len(tokens) < MIN_POINTS:
        return None
    prompt_s, prompt_error = prompt_times(list(lengths), list(lengths.values()))
    token_s, growth, token_error = token_times(
        list(tokens), [median(one.token_s for one in same) for same in tokens.values()]
    )
    rise, power_error = _token_rise(runs, idle)
    prompt_share, prompt_power_error = _prompt_share(runs)
    return Engine(
        gpu=runs[0].gpu,
        model=runs[0].model,
        gpus=runs[0].gpus,
        active_billions=runs[0].billions,
        layout=f"TP{runs[0].gpus}",
        idle_share=idle,
        rise_share=rise,
        prompt_share=prompt_share,
        token_s=token_s,
        token_batch_growth=growth,
        prompt_s=prompt_s,
        batches=(min(tokens), max(tokens)),
        power_error=power_error,
        token_time_error=token_error,
        prompt_time_error=prompt_error,
        prompt_power_error=prompt_power_error,
    )


def _sound(run: RequestPoint) -> bool:
    return run.prompt_tokens * run.batch <= MAX_TOKENS_AT_ONCE


def _prompt_medians(runs: Sequence[RequestPoint]) -> dict[int, float]:
    """Return the median time by tokens read at once: 2 prompts of 512 take as long as one of 1024."""
    found: dict[int, list[float]] = defaultdict(list)
    for run in runs:
        if run.prompt_tokens * run.batch <= MAX_PROMPT_TOKENS:
            found[run.prompt_tokens * run.batch].append(run.prompt_s)
    return {tokens: median(seconds) for tokens, seconds in sorted(found.items())}


def _token_rise(runs: Sequence[RequestPoint], idle: float) -> tuple[float, Error | None]:
    """Return the same power for every batch: the Splitwise paper found no rise, nor does its table up to 4."""
    shares = [
        (one.mean_share * one.whole_s - one.peak_share * one.prompt_s) / (one.whole_s - one.prompt_s)
        for one in runs
        if one.mean_share and one.peak_share and one.prompt_s < MAX_PROMPT_SHARE * one.whole_s
    ]
    if len(shares) < MIN_POINTS:
        return 0.0, None
    error = error_of(_predicted_from_others(shares), shares)
    return round(max(0.0, float(np.mean(shares)) - idle), 4), error


def _prompt_share(runs: Sequence[RequestPoint]) -> tuple[float, Error | None]:
    peaks = [one.peak_share for one in runs if one.peak_share and one.prompt_tokens * one.batch >= FILLING_TOKENS]
    if len(peaks) < MIN_POINTS:
        return 0.0, None
    return round(float(np.mean(peaks)), 4), error_of(_predicted_from_others(peaks), peaks)


def _predicted_from_others(values: Sequence[float]) -> list[float]:
    whole, count = sum(values), len(values)
    return [(whole - value) / (count - 1) for value in values]
