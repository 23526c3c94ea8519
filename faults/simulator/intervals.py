"""Confidence limits of counts: Wilson's interval of a share, and the upper bound of a Poisson rate."""

import math

_Z95 = 1.959963984540054


def wilson(hits: int, of: int) -> tuple[float, float] | None:
    """Return the 95 % interval of hits / of (Wilson 1927); None for `of` = 0."""
    if not of:
        return None
    share, square = hits / of, _Z95 * _Z95
    middle = share + square / (2 * of)
    half = _Z95 * math.sqrt(share * (1 - share) / of + square / (4 * of * of))
    scale = 1 + square / of
    return max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)


def poisson_upper(count: int, *, confidence: float = 0.95) -> float:
    """Return the mean at which this count or less has a probability of 1 - confidence; 3.0 for a count of 0."""
    low, high = 0.0, count + 10.0 * math.sqrt(count + 1.0) + 10.0
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        if _at_most(count, middle) > 1.0 - confidence:
            low = middle
        else:
            high = middle
    return high


def _at_most(count: int, mean: float) -> float:
    """Return the probability of at most this many events."""
    if mean <= 0.0:
        return 1.0
    return math.fsum(math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(count + 1))
