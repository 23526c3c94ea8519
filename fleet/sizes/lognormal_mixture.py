"""Mixtures of bivariate lognormals: few numbers that describe a trace of (input, output) sizes.

In component c the logarithms (u, v) of a request's input and output are jointly normal with means (m_u, m_v),
deviations (s_u, s_v) and correlation r.  Sizes are whole: a request has n tokens where n - 1 < exp(u) <= n, and at
least one.  The share of requests in a cell (u0, u1] x (v0, v1] is

    sum_c w_c * integral over z from (u0 - m_u)/s_u to (u1 - m_u)/s_u of
        phi(z) * [Phi((v1 - m_v - r s_v z) / (s_v sqrt(1 - r^2))) - Phi(the same with v0)] dz

by Gauss-Legendre quadrature on pieces of at most one deviation: deterministic, and without samples.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import erf, inf, log, sqrt
from typing import Annotated

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fleet.documents import Frozen

Floats = npt.NDArray[np.float64]

FAR = 9.0  # deviations beyond which there is less than 1e-18
NODES, WEIGHTS = np.polynomial.legendre.leggauss(16)
CORRELATION_MAX = 0.95  # beyond it the quadrature would need more nodes

LogTokens = Annotated[float, Field(ge=-10, le=20)]
LogSpread = Annotated[float, Field(ge=0.01, le=5)]

_phi_of = np.vectorize(erf, otypes=[np.float64])


class Component(Frozen):
    """One bivariate lognormal; means and deviations are of the natural logarithm of tokens."""

    weight: Annotated[float, Field(gt=0, le=1)]
    input_mean: LogTokens
    input_std: LogSpread
    output_mean: LogTokens
    output_std: LogSpread
    correlation: Annotated[float, Field(ge=-CORRELATION_MAX, le=CORRELATION_MAX)]


def cell_shares(
    components: Sequence[Component], *, input_edges: Sequence[float], output_edges: Sequence[float]
) -> Floats:
    """The share of requests per cell, one row per input edge; the first cell starts at 0, and inf is a valid edge."""
    inputs, outputs = _log_edges(input_edges), _log_edges(output_edges)
    shares = sum(part.weight * _of_component(part, inputs, outputs) for part in components)
    # The difference of two nearly equal sums may fall below 0 by a rounding error.
    return np.asarray(shares).clip(min=0) / sum(part.weight for part in components)


def draw(
    components: Sequence[Component], count: int, *, rng: np.random.Generator
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    weights = np.array([part.weight for part in components])
    chosen = rng.choice(len(components), size=count, p=weights / weights.sum())
    z, independent = rng.standard_normal((2, count))
    r = _of_chosen(components, "correlation", chosen)
    u = _of_chosen(components, "input_mean", chosen) + _of_chosen(components, "input_std", chosen) * z
    correlated = r * z + np.sqrt(1 - r**2) * independent
    v = _of_chosen(components, "output_mean", chosen) + _of_chosen(components, "output_std", chosen) * correlated
    return _whole(u), _whole(v)


def normal_cdf(z: Floats) -> Floats:
    """Phi, also of infinities."""
    found: Floats = 0.5 * (1 + _phi_of(z / sqrt(2)))
    return found


def _of_component(part: Component, inputs: Floats, outputs: Floats) -> Floats:
    bounds = ((inputs - part.input_mean) / part.input_std).clip(-FAR, FAR)
    targets = (outputs - part.output_mean) / part.output_std
    rows = [_row(low, high, targets, part.correlation) for low, high in pairwise(bounds)]
    return np.array(rows)


def _row(low: float, high: float, targets: Floats, r: float) -> Floats:
    if high <= low:
        return np.zeros(len(targets) - 1)
    pieces = int(np.ceil(high - low))
    half = (high - low) / (2 * pieces)
    middles = low + half * (2 * np.arange(pieces) + 1)
    z = (middles[:, None] + half * NODES).ravel()
    density = np.tile(WEIGHTS * half, pieces) * np.exp(-z * z / 2) / sqrt(2 * np.pi)
    below = normal_cdf((targets[:, None] - r * z) / sqrt(1 - r * r))
    shares: Floats = np.diff(below @ density)
    return shares


def _log_edges(edges: Sequence[float]) -> Floats:
    return np.array([-inf, *(log(edge) if edge < inf else inf for edge in edges)])


def _of_chosen(components: Sequence[Component], field: str, chosen: npt.NDArray[np.int64]) -> Floats:
    values: Floats = np.array([getattr(part, field) for part in components])[chosen]
    return values


def _whole(logs: Floats) -> npt.NDArray[np.int64]:
    return np.ceil(np.exp(logs)).clip(min=1, max=1e8).astype(np.int64)
