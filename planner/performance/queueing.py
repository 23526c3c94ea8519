"""Closed forms for waiting times (docs/explanation/planner/performance.md, section 4)."""

from statistics import NormalDist

import numpy as np

from planner.performance.hardware_demand import Array


def slots_wait_s(*, busy: Array, slots: Array, service_s: Array, arrival_cv: float, service_cv: float) -> Array:
    """Mean wait for one of many places: Sakasegawa's formula for GI/G/c (Ann. Inst. Stat. Math. 29, 1977)."""
    load = np.minimum(busy / slots, 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        wait_s = load ** (np.sqrt(2 * (slots + 1)) - 1) / (slots * (1 - load)) * service_s
    wait_s = np.where(load >= 1, np.inf, wait_s)
    return np.asarray((arrival_cv**2 + service_cv**2) / 2 * wait_s)


def turn_wait_s(*, load: Array, service_s: Array, arrival_cv: float, service_cv: float) -> Array:
    """Mean wait for a single place: the same formula with c = 1, Kingman's, exact for Poisson arrivals."""
    return slots_wait_s(busy=load, slots=np.ones(1), service_s=service_s, arrival_cv=arrival_cv, service_cv=service_cv)


def wait_quantile_s(mean_s: Array, *, delayed: Array, quantile: float) -> Array:
    """Quantile of a wait that is 0 except for a share `delayed`, and exponential there: the heavy-traffic limit."""
    beyond = 1 - quantile
    with np.errstate(divide="ignore", invalid="ignore"):
        found = mean_s / delayed * np.log(delayed / beyond)
    return np.asarray(np.where(delayed > beyond, found, 0.0))


def interruptions(mean: Array, *, load: Array, arrival_cv: float, quantile: float) -> Array:
    """Prompts read during a stay, at a percentile.

    Every prompt read during a stay lengthens it, and more arrive meanwhile, so their number is that of a busy period:
    the generalised Poisson distribution (Consul and Jain, Technometrics 15, 1973), with variance
    mean / (1 - load)^2 and a third cumulant of (1 + 2 load) / (1 - load)^4 times the mean.  The percentile is its
    expansion by Cornish and Fisher; it is 0 where fewer requests than the share beyond it meet a prompt.
    """
    normal, uneven = NormalDist().inv_cdf(quantile), (1 + arrival_cv**2) / 2
    spread = normal * np.sqrt(mean * uneven) / (1 - load)
    skew = (normal**2 - 1) / 6 * (1 + 2 * load) / (1 - load) ** 2 * uneven
    found = np.maximum(0.0, mean + spread + skew)
    return np.asarray(np.where(-np.expm1(-mean) > 1 - quantile, found, 0.0))
