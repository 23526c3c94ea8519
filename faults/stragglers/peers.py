"""The common parts of nodes: the level of a role (pipeline stage), and the data of a replica.

The common part of a replica is removed to the degree to which replicas differ (an empirical Bayes shrinkage), and
completely if it is significant by itself.  Model: docs/explanation/faults/stragglers.md
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from faults.fabric import Floats, Ints

MAD: Final = 1.4826
EFFICIENCY: Final = np.pi / 2.0  # variance of a median over that of a mean
STANDS_OUT: Final = 3.0  # standard errors
REPLICA_FEW: Final = 4  # nodes, for a median of a replica
POLISHES: Final = 2
MIN: Final = 1e-4


class Peers:
    """Nodes by label, arranged so that medians take one sort."""

    def __init__(self, label: Ints) -> None:
        _, self.row, self.size = np.unique(label, return_inverse=True, return_counts=True)
        self.most = int(self.size.max(initial=0))
        order = np.argsort(self.row, kind="stable")
        first = np.cumsum(self.size) - self.size
        column = np.empty(label.size, np.int64)
        column[order] = np.arange(label.size) - np.repeat(first, self.size)
        self._place = self.row * self.most + column
        self._each = np.arange(self.size.size)

    def observed(self, observed: NDArray[np.bool_]) -> Ints:
        return np.bincount(self.row[observed], minlength=self.size.size)

    def medians(self, values: Floats, observed: Ints) -> Floats:
        """Return the median of observed nodes, per label; NaN without any."""
        cells = np.full(self.size.size * self.most, np.nan)
        cells[self._place] = values
        table = cells.reshape(self.size.size, self.most)
        table.sort(axis=1)  # NaN last
        low, high = np.maximum((observed - 1) // 2, 0), np.minimum(observed // 2, self.most - 1)
        return np.asarray((table[self._each, low] + table[self._each, high]) / 2.0)


@dataclass(frozen=True)
class Roles:
    """Role (`stage`) and data (`replica`) per node; 0 for all if unknown."""

    stage: Ints
    replica: Ints

    @classmethod
    def alike(cls, nodes: int) -> "Roles":
        """Return roles with all nodes in the same role, each with its own data."""
        return cls(np.zeros(nodes, np.int64), np.arange(nodes))

    @cached_property
    def by_stage(self) -> Peers:
        return Peers(self.stage)

    @cached_property
    def by_replica(self) -> Peers:
        return Peers(self.replica)

    def alone(self, few: int) -> NDArray[np.bool_]:
        return np.asarray((self.by_stage.size < few)[self.by_stage.row])


def common(gap: Floats, roles: Roles, *, few: int, noise: float) -> Floats:
    """Return the common part per node, NaN if unknown.  `gap`: log time to compute without each node's own part.

    Levels are those beside the replicas' parts (Tukey's median polish): a role's median alone lies anywhere between
    late nodes and the others once half of its replicas have more data.  The part of a large replica with too few
    observed nodes is unknown.
    """
    observed = np.isfinite(gap)
    stages = roles.by_stage.observed(observed)
    level = _level(gap, roles, stages, few)
    if roles.by_replica.most < REPLICA_FEW:
        return level
    replicas = roles.by_replica.observed(observed & np.isfinite(level))
    row, known = roles.by_replica.row, replicas >= REPLICA_FEW
    for _ in range(POLISHES):
        middle = np.where(known, roles.by_replica.medians(gap - level, replicas), 0.0)
        level = _level(gap - middle[row], roles, stages, few)
    middle = np.where(known, roles.by_replica.medians(gap - level, replicas), 0.0)
    level[(~known & (roles.by_replica.size >= REPLICA_FEW))[row]] = np.nan
    return np.asarray(level + _shrunk(middle, replicas, known, noise)[row])


def _level(gap: Floats, roles: Roles, observed: Ints, few: int) -> Floats:
    """Return the median per role; of all, for a role with too few nodes.

    A large role with too few observed nodes is unknown: the common median is not the role's.
    """
    by = roles.by_stage
    level = np.where(observed >= few, by.medians(gap, observed), np.nan)
    if (alone := by.size < few).any():
        level[alone] = median(gap)
    return np.asarray(level[by.row])


def _shrunk(middle: Floats, observed: Ints, known: NDArray[np.bool_], noise: float) -> Floats:
    if not known.any():
        return middle
    error2 = np.zeros(middle.size)
    error2[known] = EFFICIENCY * noise**2 / observed[known]
    between = max((MAD * median(np.abs(middle[known]))) ** 2 - float(error2[known].mean()), 0.0)
    share = between / np.maximum(between + error2, MIN**2)
    share[middle**2 > STANDS_OUT**2 * error2] = 1.0
    return np.asarray(share * middle)


def median(values: Floats) -> float:
    """Return the median of observed nodes; 0 without any."""
    return of_rank(values, 0.5)


def of_rank(values: Floats, share: float) -> float:
    """Return the lower quantile of observed nodes: numpy's takes seven times as long.  0 without any."""
    values = values[np.isfinite(values)]
    if not values.size:
        return 0.0
    at = int((values.size - 1) * share)
    return float(np.partition(values, at)[at])
