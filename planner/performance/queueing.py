"""Closed forms for waiting (docs/performance.md, section 4)."""

import numpy as np

from planner.performance.demands import Array


def slots_wait_s(*, busy: Array, slots: Array, service_s: Array, arrival_cv: float, service_cv: float) -> Array:
    """Mean wait for one of many places: Sakasegawa's formula for GI/G/c (Ann. Inst. Stat. Math. 29, 1977)."""
    load = np.minimum(busy / slots, 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        wait_s = load ** (np.sqrt(2 * (slots + 1)) - 1) / (slots * (1 - load)) * service_s
    wait_s = np.where(load >= 1, np.inf, wait_s)
    return np.asarray((arrival_cv**2 + service_cv**2) / 2 * wait_s)


def turn_wait_s(*, load: Array, service_s: Array, arrival_cv: float, service_cv: float) -> Array:
    """Mean wait for the only place: the same with c = 1, which is Kingman's, exact for Poisson arrivals."""
    return slots_wait_s(busy=load, slots=np.ones(1), service_s=service_s, arrival_cv=arrival_cv, service_cv=service_cv)


def wait_quantile_s(mean_s: Array, *, delayed: Array, quantile: float) -> Array:
    """Of a wait that is 0 but for a share `delayed`, and exponential there: heavy traffic's limit."""
    beyond = 1 - quantile
    with np.errstate(divide="ignore", invalid="ignore"):
        found = mean_s / delayed * np.log(delayed / beyond)
    return np.asarray(np.where(delayed > beyond, found, 0.0))
