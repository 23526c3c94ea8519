"""Probe confirmation of a suspected host.  docs/explanation/faults/localisation.md, "Probe confirmation"

Per pair of the suspect's NIC, the log likelihood ratio of "slow by about x" against "usual":

    L = log t((r - x) / s') / s' - log t(r / s) / s,    s'^2 = s^2 + (misfit x)^2

is at most the log odds against congestion on its own paths (`probes.CongestionCounts`).  Probes that leave the leaf
together share its cables and pay as reverse paths do (`chance_model`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from faults.fabric import Fabric, Floats
from faults.localisation.chance_model import cables_of, hashed_nats
from faults.localisation.entities import Entities, Kind
from faults.localisation.probes import Probes, Reading, Ways
from faults.localisation.settings import LocaliserSettings

MIN_PAIRS = 3  # observed pairs; fewer are no evidence
AGREES = 7.0  # nats: chance confirms once in a thousand times
AGAINST = -3.0
DOUBT = 5.0  # nats that one pair may contradict at most: its probe may have been lost, and the minimum of few counted


class _Pairs(NamedTuple):
    pair: NDArray[np.int32]
    nats: Floats
    away: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class PairEvidence:
    nats: float
    most: bool  # of the pairs support it
    direction: Kind  # Tx, Rx, or both
    lasted: float  # windows, as if it had been at its largest slowdown throughout

    @property
    def confirms(self) -> bool:
        return self.most and self.nats >= AGREES

    @property
    def clears(self) -> bool:
        return not self.most and self.nats <= AGAINST


@dataclass(frozen=True, slots=True)
class ProbeConfirmation:
    """The probes of one window as confirmation; None without probes."""

    fabric: Fabric
    ways: Ways
    reading: Reading
    probes: Probes
    settings: LocaliserSettings

    def at(self, all_of: Entities, entity: int, slowdown: float) -> PairEvidence | None:
        """Return the evidence for an entity; None with too few probes."""
        which = int(all_of.which[entity])
        whole = bool(all_of.kind[entity] == Kind.NODE)
        ports = np.flatnonzero(self.fabric.node == which) if whole else np.array([which])
        out = self._of(ports, slowdown, self.ways.out_first, self.ways.out)
        into = self._of(ports, slowdown, self.ways.into_first, self.ways.into)
        if out.nats.size + into.nats.size < MIN_PAIRS:
            return None
        both = self._examine(ports, Kind.NIC, out, into)
        ways = (both, self._examine(ports, Kind.TX, out), self._examine(ports, Kind.RX, into))
        return both if whole else max(ways, key=lambda one: one.nats)

    def _of(
        self, ports: NDArray[np.int64], slowdown: float, first: NDArray[np.int32], pair: NDArray[np.int32]
    ) -> _Pairs:
        mine = np.concatenate([pair[first[port] : first[port + 1]] for port in ports])
        mine = mine[np.isfinite(self.reading.residual[mine])]
        residual, scale, tail = (column[mine] for column in self.reading)
        wide = scale**2 + (self.settings.host_misfit * slowdown) ** 2
        half = 0.5 * (tail + 1.0)
        nats = half * np.log1p(residual**2 / (tail * scale**2)) - half * np.log1p(
            (residual - slowdown) ** 2 / (tail * wide)
        )
        return _Pairs(mine, np.maximum(nats - 0.5 * np.log(wide / scale**2), -DOUBT), self.ways.away[mine])

    def _examine(self, ports: NDArray[np.int64], direction: Kind, *of: _Pairs) -> PairEvidence:
        near_most, away_most = self.probes.congestion.nats(self.ways.first_away)
        total, supporting, count = 0.0, 0, 0
        for _, nats, away in of:
            total += float(np.minimum(nats[~away], near_most).sum() + nats[away & (nats <= 0.0)].sum())
            gained = np.minimum(nats[away & (nats > 0.0)], away_most)
            if gained.size:
                cables = max(1, cables_of(self.fabric, int(self.fabric.leaf[ports[0]])))
                total += min(
                    float(gained.sum()), ports.size * hashed_nats(-(-gained.size // ports.size), cables, away_most)
                )
            supporting, count = supporting + int((nats > 0.0).sum()), count + nats.size
        lasted = windows_slow([last[np.concatenate([one.pair for one in of])] for last in self.probes.last])
        return PairEvidence(total, 2 * supporting > count, direction, lasted)


def windows_slow(readings: Sequence[Floats]) -> float:
    """Return the number of these windows, newest first, at full slowness: sum of medians over the largest.

    A hiccup of two windows may touch three, but then the first and the last make up one.
    """
    middles = [float(np.median(finite)) if (finite := of[np.isfinite(of)]).size else 0.0 for of in readings]
    most = max(middles, default=0.0)
    return sum(max(middle, 0.0) for middle in middles) / most if most > 0.0 else 0.0
