"""Sampled check of the normal distribution: how often a feed exceeds a limit with servers drawn one by one.

Forecast errors have one common factor, truncated so that busy shares stay from 0 to 1.  The phases of a class's servers
follow a multinomial distribution.  The interval is Wilson's (1927), 95 %.
"""

from collections.abc import Sequence
from math import sqrt
from typing import NamedTuple

import numpy as np

from power.arrays import Floats
from power.caps.power_model import Busy
from power.tree.hierarchy import ServerClass

NORMAL_95 = 1.959964


class Running(NamedTuple):
    one: ServerClass
    busy: Busy
    token_clock: float
    prompt_clock: float
    servers: int


class Chance(NamedTuple):
    """A share of the samples with its interval."""

    low: float
    mid: float
    high: float


def sampled_w(classes: Sequence[Running], *, correlation: float, samples: int, rng: np.random.Generator) -> Floats:
    """Return the total power of the classes at sampled moments of sampled days."""
    common = rng.standard_normal(samples)
    total = np.zeros(samples)
    for running in classes:
        own = rng.standard_normal(samples)
        error = running.busy.spread * (sqrt(correlation) * common + sqrt(1 - correlation) * own)
        total += _one_w(running, running.busy.median + error, rng)
    return total


def chance_above(limit_w: float, watts: Floats) -> Chance:
    """Return the probability of a moment above a limit."""
    n, share = len(watts), float((watts > limit_w).mean())
    z2 = NORMAL_95**2
    middle = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = NORMAL_95 * sqrt(share * (1 - share) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    return Chance(max(0.0, middle - half), share, min(1.0, middle + half))


def _one_w(running: Running, busy: Floats, rng: np.random.Generator) -> Floats:
    group, model, clocks = running.one.group, running.one.model, (running.token_clock, running.prompt_clock)
    if group.training is not None or group.load is None:
        steady_w = group.training.peak_w(clocks[0]) if group.training is not None else model.idle_w
        return np.full(len(busy), running.servers * steady_w)
    load = group.load
    token = (1 - load.prompt_share) * model.token_slowdown(clocks[0])
    prompt = load.prompt_share * model.prompt_slowdown(clocks[1])
    share = np.clip(busy, 0.0, 1 / (token + prompt))
    tokens = rng.binomial(running.servers, share * token)
    left = running.servers - tokens
    prompts = rng.binomial(left, np.clip(share * prompt / np.maximum(1e-12, 1 - share * token), 0, 1))
    token_w, prompt_w = model.token_w(clocks[0], load.together), model.prompt_w(clocks[1])
    watts = running.servers * model.idle_w + tokens * (token_w - model.idle_w) + prompts * (prompt_w - model.idle_w)
    return np.asarray(watts, dtype=np.float64)
