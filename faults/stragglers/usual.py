"""How long a node usually computes, by its own history and its peers, and what its replica's data adds.

    log gap_i(t) = role level(t) + usual_i + replica(t) + noise,   usual_i ~ N(0, spread^2) until seen otherwise

The level is the median of all nodes of the same role (pipeline stage); a node's usual is a Kalman filter for a
constant, as for edges.  What a replica has in common is data: it is estimated by the median over the replica's nodes
and taken off to the degree to which replicas differ at all (an empirical Bayes shrinkage), in full where it stands
out by itself.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from faults.fabric import Floats, Ints
from faults.stragglers.settings import StragglerSettings

MAD = 1.4826
EFFICIENCY = np.pi / 2.0  # variance of a median over that of a mean
STANDS_OUT = 3.0  # standard errors
REPLICA_FEW = 4  # nodes, from which a replica has a middle
POLISHES = 2
UNLIKE = 0.2  # how far roles differ (log): the first and last stage of a pipeline compute a tenth longer
LEAST = 1e-4
WINSOR = 2.0


class Kin:
    """Nodes by what they have in common, laid out once so that medians are one sort."""

    def __init__(self, label: Ints) -> None:
        _, self.row, self.size = np.unique(label, return_inverse=True, return_counts=True)
        self.most = int(self.size.max(initial=0))
        order = np.argsort(self.row, kind="stable")
        self._first = np.cumsum(self.size) - self.size
        column = np.empty(label.size, np.int64)
        column[order] = np.arange(label.size) - np.repeat(self._first, self.size)
        self._place = self.row * self.most + column

    def medians(self, values: Floats) -> tuple[Floats, Ints]:
        """(median of what is heard, how many are) per label; NaN where nobody is."""
        table = np.full(self.size.size * self.most, np.nan)
        table[self._place] = values
        table = np.sort(table.reshape(self.size.size, self.most), axis=1)  # NaN last
        heard = np.isfinite(table).sum(axis=1)
        each = np.arange(heard.size)
        low, high = np.maximum((heard - 1) // 2, 0), np.minimum(heard // 2, self.most - 1)
        return (table[each, low] + table[each, high]) / 2.0, heard


@dataclass(frozen=True)
class Roles:
    """Who does the same work (`stage`) and who gets the same data (`replica`), per node; 0 for all: not known."""

    stage: Ints
    replica: Ints

    @classmethod
    def alike(cls, nodes: int) -> "Roles":
        """All do the same, each on data of its own."""
        return cls(np.zeros(nodes, np.int64), np.arange(nodes))

    @cached_property
    def by_stage(self) -> Kin:
        return Kin(self.stage)

    @cached_property
    def by_replica(self) -> Kin:
        return Kin(self.replica)


@dataclass(frozen=True, slots=True)
class Usual:
    """Per node, but for the noise and the spread."""

    usual: Floats
    windows: Floats
    before: Floats
    noise: float
    spread: float
    age: int


def start(nodes: int, settings: StragglerSettings) -> Usual:
    """Nothing known."""
    return Usual(np.zeros(nodes), np.zeros(nodes), np.full(nodes, np.nan), 0.0, settings.spread, 0)


def late(known: Usual, gaps_s: Floats, roles: Roles, settings: StragglerSettings) -> tuple[Usual, Floats, Floats]:
    """(scales brought up to date, log lateness per node with its role's level off, what its replica explains of it)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        said = np.where(gaps_s > 0.0, np.log(gaps_s), np.nan)
    said[~np.isfinite(said)] = np.nan
    said = said - _levels(said - known.usual, roles, settings.few)
    moved = MAD * _median(np.abs(said - known.before)) / np.sqrt(2.0)
    total = MAD * _median(np.abs(said - _median(said)))
    if known.age == 0:
        noise, spread = total, settings.spread
    else:
        rate = 1.0 / min(known.age, 120)
        noise = float(np.sqrt((1.0 - rate) * known.noise**2 + rate * moved**2)) if moved > 0.0 else known.noise
        beside = max(total**2 - noise**2, LEAST**2)
        spread = float(np.sqrt((1.0 - rate) * known.spread**2 + rate * beside))
    known = replace(known, noise=max(noise, LEAST), spread=max(spread, settings.spread / 2.0))
    return known, said, _replica(said - known.usual, roles, known.noise)


def apart(known: Usual, roles: Roles, settings: StragglerSettings) -> Floats:
    """How far each node may be from its peers for ever; where its role has too few, its peers are of other roles."""
    alone = roles.by_stage.size[roles.by_stage.row] < settings.few
    return np.where(alone, max(UNLIKE, known.spread), known.spread)


def unsure(known: Usual, spread: Floats) -> Floats:
    """Standard error of each node's usual."""
    return np.sqrt(1.0 / (1.0 / spread**2 + known.windows / known.noise**2))


def learn(
    known: Usual,
    said: Floats,
    of_replica: Floats,
    doubtful: NDArray[np.bool_],
    spread: Floats,
    *,
    most_windows: float,
) -> Usual:
    """Believe a little more in what is not under suspicion."""
    gap = said - of_replica - known.usual
    learnt = np.isfinite(gap) & ~doubtful
    windows = np.where(learnt, np.minimum(known.windows + 1.0, most_windows), known.windows)
    limit = WINSOR * np.hypot(known.noise, spread)
    step = np.clip(np.where(learnt, gap, 0.0), -limit, limit) / (windows + (known.noise / spread) ** 2)
    before = np.where(np.isfinite(said), said, known.before)
    return replace(known, usual=known.usual + step, windows=windows, before=before, age=known.age + 1)


def _levels(gap: Floats, roles: Roles, few: int) -> Floats:
    """What a role's nodes have in common, beside what their replicas have (Tukey's median polish).

    A role's median alone is anywhere between the late and the others once half of its replicas have more data.
    """
    level = _level(gap, roles, few)
    for _ in range(POLISHES):
        level = _level(gap - _middle_of(gap - level, roles), roles, few)
    return level


def _level(gap: Floats, roles: Roles, few: int) -> Floats:
    """Median per role; of all, where a role has too few nodes.

    Where it has enough and too few are heard, nothing is known: what all have in common is not what the role has.
    """
    by = roles.by_stage
    middle, heard = by.medians(gap)
    level = np.where(heard >= few, middle, np.nan)
    level[by.size < few] = _median(gap)
    return level[by.row]


def _replica(gap: Floats, roles: Roles, noise: float) -> Floats:
    """What each node's replica explains."""
    found = _replicas(gap, roles)
    if found is None:
        return np.zeros(gap.size)
    known, middle = found.heard >= REPLICA_FEW, found.middle
    error2 = np.zeros(middle.size)
    error2[known] = EFFICIENCY * noise**2 / found.heard[known]
    between = (
        max((MAD * _median(np.abs(middle[known]))) ** 2 - float(error2[known].mean()), 0.0) if known.any() else 0.0
    )
    share = between / np.maximum(between + error2, LEAST**2)
    share[middle**2 > STANDS_OUT**2 * error2] = 1.0
    return (share * middle)[roles.by_replica.row]


def _middle_of(gap: Floats, roles: Roles) -> Floats:
    """Each node's replica's median; 0 where too few are heard."""
    found = _replicas(gap, roles)
    return np.zeros(gap.size) if found is None else found.middle[roles.by_replica.row]


class _Replicas(NamedTuple):
    middle: Floats  # per replica
    heard: Ints


def _replicas(gap: Floats, roles: Roles) -> _Replicas | None:
    """None where no replica has enough nodes."""
    by = roles.by_replica
    if by.most < REPLICA_FEW:
        return None
    middle, heard = by.medians(gap)
    return _Replicas(np.where(heard >= REPLICA_FEW, middle, 0.0), heard)


def _median(values: Floats) -> float:
    values = values[np.isfinite(values)]
    return float(np.median(values)) if values.size else 0.0
