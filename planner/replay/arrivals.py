"""Synthetic requests: sizes from a histogram, arrivals from a demand series.

Gaps are gamma distributed in the time of the demand.  A coefficient of variation of 1 gives a Poisson process, a lower
one more even arrivals, a higher one bursts.  In production Gamma and Weibull gaps often fit better than exponential
ones (ServeGen, arXiv 2505.09999).
"""

import numpy as np

from fleet.demand import DemandSeries
from fleet.documents import RuleError
from fleet.sizes.histogram import SizeBuckets
from planner.replay.stream import Seconds, Stream, Tokens, moments, refuse_many

MAX_CV = 20.0


def synthetic_arrivals(
    sizes: SizeBuckets, demand: DemandSeries, *, rng: np.random.Generator, cv: float = 1.0
) -> Stream:
    """Requests whose mean rate follows the series; `cv` is the coefficient of variation of the gaps."""
    if not 0 < cv <= MAX_CV:
        raise RuleError([(("cv",), f"{cv:g} is out of range, expected more than 0 and at most {MAX_CV:g}")])
    refuse_many(demand.requests)
    arrival_s = moments(_renewals(demand.requests, rng=rng, cv=cv), demand)
    arrival_s = arrival_s[np.isfinite(arrival_s)]
    input_tokens, output_tokens = _sizes(sizes, len(arrival_s), rng=rng)
    return Stream(arrival_s, input_tokens, output_tokens, demand.duration_s)


def _renewals(expected: float, *, rng: np.random.Generator, cv: float) -> Seconds:
    """Times of a renewal process of rate 1, up to this one and a little beyond."""
    shape = 1.0 / cv**2
    reached = np.zeros(1)
    while reached[-1] < expected:
        missing = int(expected - reached[-1] + 4.0 * cv * expected**0.5) + 16
        gaps = rng.gamma(shape, 1.0 / shape, size=missing)
        reached = np.concatenate((reached, reached[-1] + np.cumsum(gaps)))
    return reached[1:]


def _sizes(sizes: SizeBuckets, count: int, *, rng: np.random.Generator) -> tuple[Tokens, Tokens]:
    """Buckets by their shares; inside a bucket sizes are uniform up to its edge."""
    buckets = list(sizes.buckets())
    shares = np.array([bucket.share for bucket in buckets])
    drawn = rng.choice(len(buckets), size=count, p=shares / shares.sum())
    lower = np.array([bucket.lower for bucket in buckets])[drawn]
    edge = np.array([bucket.edge for bucket in buckets])[drawn]
    tokens = rng.integers(lower, edge, endpoint=False) + 1
    return tokens[:, 0].copy(), tokens[:, 1].copy()
