"""A smooth distribution from the buckets of a histogram, by the penalized composite link model.

A server exports the number of requests per bucket and the sum of their sizes.  Inside a bucket the distribution is
unknown: vLLM's buckets of tokens grow by factors of 2 and 2.5.  The model of Rizzi, Gampe and Eilers (Am. J.
Epidemiology 182(2), 2015) divides the buckets into cells, with the log-density theta at the cell c, and maximises

    sum_b (y_b log mu_b - mu_b)  -  lambda/2 * integral of theta''(log x)^2

with mu_b, the sum of exp(theta) over the cells of bucket b.

The sums give more than the mean: each scrape i of a replica adds requests c_ib to bucket b and S_i to the sum, so

    S_i = sum_b c_ib m_b + e_i,      Var(e_i) = sum_b c_ib v_b

with the mean m_b and variance v_b inside the bucket.  This Gaussian term joins the likelihood.  At last the cells are
scaled to the exact counts, and tilted within each bucket to the exact mean.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

SMOOTHING = 1.0  # lambda; chosen on traces other than those that the report evaluates
CELLS_PER_BUCKET = 12
OPEN_RATIO = 4.0  # upper end of the last, open bucket over its lower edge
MAX_ITERATIONS = 60
CONVERGED = 1e-5
MAX_STEP = 2.0  # of a Newton step, in log-density
TILTS = 60.0  # the strongest tilt of a bucket towards one of its ends


@dataclass(frozen=True, slots=True)
class Density:
    """Shares of cells (lower, upper]; inside a cell the logarithm of a size is uniform."""

    lower: Floats
    upper: Floats
    share: Floats
    edges: tuple[float, ...]  # of the buckets it was estimated from; a quantile's bucket is certain
    requests: float
    mean: float  # of the sum, exact

    def quantile(self, p: float) -> float:
        below = np.cumsum(self.share)
        cell = min(int(np.searchsorted(below, p * below[-1])), len(below) - 1)
        within = (p * below[-1] - (below[cell] - self.share[cell])) / max(self.share[cell], 1e-300)
        return float(self.lower[cell] * (self.upper[cell] / self.lower[cell]) ** min(max(within, 0.0), 1.0))

    def bracket(self, p: float) -> tuple[float, float | None]:
        """The edges of the bucket that has this quantile; None: it is open."""
        at = self.quantile(p)
        position = int(np.searchsorted(self.edges, at * (1 - 1e-9)))
        return (
            self.edges[position - 1] if position else 0.0,
            self.edges[position] if position < len(self.edges) else None,
        )

    def share_above(self, size: float) -> float:
        return float(self.shares_on((size, 2 * size))[1])

    def shares_on(self, edges: Sequence[float]) -> Floats:
        """The shares of buckets with these upper edges; the last bucket also has everything above it."""
        below = np.concatenate(([0.0], np.cumsum(self.share))) / self.share.sum()
        bounds = np.log(np.stack((self.lower, self.upper), axis=1).ravel())  # cells of known sizes do not touch
        reached = np.stack((below[:-1], below[1:]), axis=1).ravel()
        cumulative = np.interp(np.log(np.asarray(edges[:-1], dtype=float)), bounds, reached)
        shares: Floats = np.diff(np.concatenate(([0.0], cumulative, [1.0])))
        return shares.clip(min=0.0)


def exact_density(values: Sequence[float] | Floats) -> Density:
    """The distribution of known sizes."""
    found, counts = np.unique(np.maximum(np.asarray(values, dtype=float), 1e-9), return_counts=True)
    mean = float(found @ counts / counts.sum())
    return Density(
        found * (1 - 1e-9), found, counts / counts.sum(), tuple(map(float, found)), float(counts.sum()), mean
    )


def estimate_density(
    edges: Sequence[float], *, counts: Floats, sums: Floats, floor: float, smoothing: float = SMOOTHING
) -> Density | None:
    """The distribution behind the increases of a histogram, row by row: one scrape of one replica each.

    `counts[i, b]` are requests in bucket b, the last of which is above all `edges`, and `sums[i]` their sum.  `floor`
    is the lower end of the first bucket.  None without requests.
    """
    total = counts.sum(axis=0)
    requests = float(total.sum())
    if requests <= 0:
        return None
    used = np.flatnonzero(total)
    first, last = max(0, int(used[0]) - 1), min(len(edges), int(used[-1]) + 1)  # and an empty bucket on each side
    bounds = np.array([floor, *edges, edges[-1] * OPEN_RATIO], dtype=float)[first : last + 2]
    counts, total = counts[:, first : last + 1], total[first : last + 1]
    cells = _Cells.of(bounds)
    theta = _fitted(cells, counts, sums, smoothing=smoothing)
    mass = cells.width * np.exp(theta)
    per_bucket = np.bincount(cells.bucket, mass, len(total))
    share = mass * (total / np.maximum(per_bucket, 1e-300))[cells.bucket] / requests
    mean = float(sums.sum()) / requests
    share = _tilted(cells, share, mean=mean)
    return Density(cells.lower, cells.upper, share, tuple(map(float, edges)), requests, mean)


@dataclass(frozen=True, slots=True)
class _Cells:
    lower: Floats
    upper: Floats
    bucket: npt.NDArray[np.intp]

    @classmethod
    def of(cls, bounds: Floats) -> "_Cells":
        grids = [np.geomspace(low, high, 1 + _cells_between(low, high)) for low, high in pairwise(bounds)]
        bucket = np.repeat(np.arange(len(grids)), [len(grid) - 1 for grid in grids])
        return cls(np.concatenate([g[:-1] for g in grids]), np.concatenate([g[1:] for g in grids]), bucket)

    @property
    def width(self) -> Floats:
        return np.asarray(np.log(self.upper / self.lower))

    @property
    def means(self) -> Floats:
        return _cell_means(self.lower, self.upper)

    def roughness(self) -> Floats:
        """The matrix R of theta' R theta, the integral of the squared second derivative by log x."""
        at = np.log(np.sqrt(self.lower * self.upper))
        before, after = np.diff(at)[:-1], np.diff(at)[1:]
        second = np.zeros((max(0, len(at) - 2), len(at)))
        row = np.arange(len(second))
        scale = np.sqrt((before + after) / 2)
        second[row, row] = scale * 2 / (before * (before + after))
        second[row, row + 1] = -scale * 2 / (before * after)
        second[row, row + 2] = scale * 2 / (after * (before + after))
        return np.asarray(second.T @ second)


def _fitted(cells: _Cells, counts: Floats, sums: Floats, *, smoothing: float) -> Floats:
    """Newton's method for theta."""
    total, buckets = counts.sum(axis=0), counts.shape[1]
    member = np.zeros((buckets, len(cells.bucket)))
    member[cells.bucket, np.arange(len(cells.bucket))] = 1.0
    penalty = smoothing * cells.roughness() + 1e-9 * np.eye(len(cells.bucket))
    theta = np.full(len(cells.bucket), np.log(total.sum() / cells.width.sum()))
    means = cells.means
    for _ in range(MAX_ITERATIONS):
        mass = cells.width * np.exp(theta)
        expected = np.maximum(member @ mass, 1e-12)
        inside = mass / expected[cells.bucket]
        bucket_mean = np.bincount(cells.bucket, inside * means, buckets)
        bucket_var = np.bincount(cells.bucket, inside * means**2, buckets) - bucket_mean**2
        link = member * mass / expected[:, None]  # d log mu_b / d theta_c
        noise = np.maximum(counts @ np.maximum(bucket_var, 0.0), 1e-12 + 1e-6 * bucket_mean.max() ** 2)
        weighed = counts.T / noise
        slope = np.zeros_like(member)  # d m_b / d theta_c
        slope[cells.bucket, np.arange(len(cells.bucket))] = inside * (means - bucket_mean[cells.bucket])
        gradient = link.T @ (total - expected) - penalty @ theta + slope.T @ (weighed @ (sums - counts @ bucket_mean))
        curvature = (link.T * expected) @ link + penalty + slope.T @ (weighed @ counts) @ slope
        step = np.linalg.solve(curvature, gradient)
        step *= min(1.0, MAX_STEP / max(float(np.abs(step).max()), 1e-12))
        theta = theta + step
        if float(np.abs(step).max()) < CONVERGED:
            break
    return theta


def _tilted(cells: _Cells, share: Floats, *, mean: float) -> Floats:
    """Move shares inside their buckets, by exp(t * position), until the mean is exact or the buckets forbid it."""
    means, buckets = cells.means, int(cells.bucket.max()) + 1
    log_means = np.log(means)
    low = np.full(buckets, np.inf)
    high = np.full(buckets, -np.inf)
    np.minimum.at(low, cells.bucket, log_means)
    np.maximum.at(high, cells.bucket, log_means)
    position = log_means - ((low + high) / 2)[cells.bucket]
    kept = np.bincount(cells.bucket, share, buckets)

    def at(tilt: float) -> Floats:
        moved = share * np.exp(tilt * position)
        scaled: Floats = moved * (kept / np.maximum(np.bincount(cells.bucket, moved, buckets), 1e-300))[cells.bucket]
        return scaled

    least, most = -TILTS, TILTS
    for _ in range(60):
        middle = (least + most) / 2
        if float(at(middle) @ means) < mean:
            least = middle
        else:
            most = middle
    return at((least + most) / 2)


def _cells_between(low: float, high: float) -> int:
    """Sizes from 1 up are whole numbers, so that no cell is narrower than 1."""
    return CELLS_PER_BUCKET if low < 1 else max(1, min(CELLS_PER_BUCKET, int(high - low)))


def _cell_means(lower: Floats, upper: Floats) -> Floats:
    """Of a size whose logarithm is uniform in the cell."""
    width = np.log(upper / lower)
    return np.asarray(np.where(width > 1e-6, (upper - lower) / np.maximum(width, 1e-300), upper))
