"""One-way probes of each pair: how much longer the second half of a train takes than usual.

    r = log(1 + (v - b) / s)        v: tail of the train, b: usual, s = b
                                    without a tail v = received - sent, s: mean of b over pairs

Three of four trains meet no traffic and take b within 2 %, on a loaded host too; the others queue among the job's bytes
(November 2026).  So b is the mode of the past: the middle of the shortest stretch that holds a quarter of it (the
shorth).  A pair is compared with its own past, and its tail also with the other pairs now, which finds faults present
from the start.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from faults.fabric import Floats, Ints
from faults.observations import Observation, Probe

BASELINE: Final = 128  # probes of a pair
MIN_USUAL: Final = 8
MIN_PEERS: Final = 4  # pairs
MIN_RECENT: Final = 3  # probes of a pair, before it counts as a peer
QUARTER: Final = 0.25  # share of the past that has to agree
MAX_RECENT: Final = 24  # the prober repeats slow trains
MIN_S: Final = 1e-5
MIN_RATIO: Final = 0.05


@dataclass(frozen=True, slots=True)
class Ratios:
    """Ratios of the last probes: a line per pair, the newest last; NaN for missing ones."""

    pairs: Ints  # (source, target) per line
    at_s: Floats
    own: Floats  # r against the pair's past
    peers: Floats  # r against the other pairs


@dataclass
class _Past:
    """Past values of one pair: those too new for the baseline, and the baseline."""

    tails: bool
    fresh: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=BASELINE))  # known at, value
    values_s: deque[float] = field(default_factory=lambda: deque(maxlen=BASELINE))
    taken: int = 0
    renewed: int = 0  # at how many

    def is_due(self) -> bool:
        """Return whether the data has grown by a tenth."""
        more = self.taken - self.renewed
        return self.taken >= MIN_USUAL and more >= min(BASELINE // 10, max(1, self.renewed // 10))


class Probes:
    """Probes of all pairs; without a suspicion, values older than `ripe_s` join the baseline."""

    def __init__(self, nodes: int, *, keep_s: float, baseline_age_s: float) -> None:
        self._nodes, self._keep_s, self._baseline_age_s = nodes, keep_s, baseline_age_s
        self._line: dict[tuple[int, int], int] = {}
        self._past: list[_Past] = []
        self._recent = np.empty((0, 2, MAX_RECENT))  # known at, value
        self._usual_s = np.empty(0)

    def observe(self, observation: Observation) -> None:
        values, source, target = observation.values, observation.peer, observation.node
        if not isinstance(values, Probe) or source is None or source == target:
            return
        if not (0 <= source < self._nodes and 0 <= target < self._nodes):
            return
        tail_s = values.tail_s
        value_s = values.received_s - values.sent_s if tail_s is None else tail_s
        line = self._line_of((source, target), tails=tail_s is not None)
        recent = self._recent[line]
        if recent[0, -1] > observation.at_s:  # NaN is not later
            return
        recent[:, :-1] = recent[:, 1:]
        recent[:, -1] = observation.at_s, value_s
        self._past[line].fresh.append((observation.at_s, value_s))

    def extend_baseline(self, now_s: float, *, suspected: bool) -> Floats:
        """Move old probes into the baseline, or discard them during a suspicion; return r of the moved probes."""
        until_s = now_s - (self._keep_s if suspected else self._baseline_age_s)
        found: list[Floats] = []
        for line, past in enumerate(self._past):
            values: list[float] = []
            while past.fresh and past.fresh[0][0] < until_s:
                values.append(past.fresh.popleft()[1])
            if not values or suspected:
                continue
            if past.tails:
                found.append(_logs(np.array(values), self._usual_s[line], self._usual_s[line]))
            past.values_s.extend(values)
            past.taken += len(values)
            if past.is_due():
                past.renewed = past.taken
                self._usual_s[line] = mode(np.array(past.values_s))
        return np.concatenate([np.empty(0), *(r[np.isfinite(r)] for r in found)])

    def ratios(self, from_s: float) -> Ratios | None:
        at_s, values_s = self._recent[:, 0], self._recent[:, 1]
        inside = at_s > from_s
        if not inside.any():
            return None
        tails = np.array([past.tails for past in self._past])
        among_s = self._among_s(np.where(inside & tails[:, None], values_s, np.nan))
        scale_s = np.where(tails, self._usual_s, self._scale_s(tails))
        own = _logs(values_s, self._usual_s[:, None], scale_s[:, None])
        peers = np.where(tails[:, None], _logs(values_s, among_s, among_s), np.nan)
        return Ratios(
            np.array(list(self._line)),
            np.where(inside, at_s, np.nan),
            np.where(inside, own, np.nan),
            np.where(inside, peers, np.nan),
        )

    def _line_of(self, pair: tuple[int, int], *, tails: bool) -> int:
        line = self._line.setdefault(pair, len(self._past))
        if line == len(self._past):
            self._past.append(_Past(tails))
            self._recent = np.concatenate([self._recent, np.full((1, 2, MAX_RECENT), np.nan)])
            self._usual_s = np.append(self._usual_s, np.nan)
        elif self._past[line].tails is not tails:  # of an agent of another version: tails and delays cannot be compared
            self._past[line] = _Past(tails)
            self._recent[line], self._usual_s[line] = np.nan, np.nan
        return line

    def _scale_s(self, tails: NDArray[np.bool_]) -> float:
        """Return the delay without clock offsets, which leave the mean if probes go both ways."""
        known = self._usual_s[~tails & np.isfinite(self._usual_s)]
        return max(MIN_S, float(known.mean())) if known.size else float("nan")

    def _among_s(self, values_s: Floats) -> float:
        """Return the time of a pair: the lower median over pairs, of each the middle of its two closest probes."""
        ordered = np.sort(values_s[np.isfinite(values_s).sum(axis=1) >= MIN_RECENT], axis=1)
        if len(ordered) < MIN_PEERS:
            return float("nan")
        apart = np.nan_to_num(np.diff(ordered, axis=1), nan=np.inf)
        at, lines = apart.argmin(axis=1), np.arange(len(ordered))
        modes = np.sort((ordered[lines, at] + ordered[lines, at + 1]) / 2.0)
        return float(modes[(len(modes) - 1) // 2])


def mode(values: Floats) -> float:
    """Return the middle of the shortest interval that holds a quarter of the values, two at least."""
    ordered = np.sort(values)
    inside = max(2, int(np.ceil(QUARTER * ordered.size)))
    if ordered.size < inside:
        return float(ordered[0])
    widths = ordered[inside - 1 :] - ordered[: ordered.size - inside + 1]
    at = int(widths.argmin())
    return float(np.median(ordered[at : at + inside]))


def _logs(values_s: Floats, usual_s: "Floats | float", scale_s: "Floats | float") -> Floats:
    found: Floats = np.log(np.maximum(MIN_RATIO, 1.0 + (values_s - usual_s) / scale_s))
    return found
