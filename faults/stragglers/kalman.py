"""A Kalman filter (1960) of each node's usual lateness and its current sway.

    x = (usual, sway)      usual(t+1) = usual(t) + drift,   sway(t+1) = a sway(t) + ...,   a = exp(-window / 300 s)
    late(t) = usual + sway + noise

A node without an update only advances in time.  An innovation beyond three standard deviations counts as three.
"""

from dataclasses import dataclass
from math import exp
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from faults.fabric import Floats
from faults.stragglers.noise_scales import Scales
from faults.stragglers.settings import StragglerSettings

WINSOR: Final = 3.0
ROLE_DIFFERENCE: Final = 0.2  # difference of roles (log): the first and last stage of a pipeline compute a tenth longer
ODD: Final = 1.25  # nodes differ by more than a normal distribution of their scale


@dataclass(frozen=True, slots=True)
class FilterState:
    usual: Floats
    sway: Floats
    usual2: Floats
    both: Floats
    sway2: Floats


class Gain(NamedTuple):
    deviation: Floats  # of an innovation
    usual: Floats
    sway: Floats


def start(nodes: int) -> FilterState:
    """Before an observation: the first one sets the variance of the usual, once the spread of nodes is known."""
    zero = np.zeros(nodes)
    return FilterState(zero, zero, np.full(nodes, np.nan), zero, zero)


def ahead(
    filter_state: FilterState,
    scales: Scales,
    settings: StragglerSettings,
    *,
    alone: NDArray[np.bool_],
    seconds: float,
    window_s: float,
) -> FilterState:
    keep = exp(-seconds / settings.wander_memory_s)
    slow = scales.noise**2 * window_s + 2.0 * settings.wander_memory_s * scales.wander**2  # stationary spectrum
    drift2 = max(slow / settings.memory_s**2, scales.drift2) * seconds  # a random walk that a filter follows so slowly
    fresh = np.isnan(filter_state.usual2)
    usual2, sway2 = filter_state.usual2 + drift2, keep**2 * filter_state.sway2 + (1.0 - keep**2) * scales.wander**2
    if fresh.any():
        prior = np.where(alone, max(ROLE_DIFFERENCE, scales.spread), ODD * scales.spread)
        usual2, sway2 = np.where(fresh, prior**2, usual2), np.where(fresh, scales.wander**2, sway2)
    return FilterState(filter_state.usual, keep * filter_state.sway, usual2, keep * filter_state.both, sway2)


def deviation(filter_state: FilterState, noise: float) -> Floats:
    return np.asarray(np.sqrt(filter_state.usual2 + 2.0 * filter_state.both + filter_state.sway2 + noise**2))


def gain(filter_state: FilterState, learnt: NDArray[np.bool_], deviation: Floats) -> tuple[Gain, FilterState]:
    """Return (Kalman gain, the covariance afterwards); 0 without an update."""
    of_usual, of_sway = filter_state.usual2 + filter_state.both, filter_state.both + filter_state.sway2
    share = learnt / deviation**2
    usual, sway = share * of_usual, share * of_sway
    after = FilterState(
        filter_state.usual,
        filter_state.sway,
        filter_state.usual2 - usual * of_usual,
        filter_state.both - usual * of_sway,
        filter_state.sway2 - sway * of_sway,
    )
    return Gain(deviation, usual, sway), after
