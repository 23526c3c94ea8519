"""One-way delays of passes, as slowdowns y of their pairs against their own past, with clock offsets o (`ahead_of`).

    d_ij = min(received_j - called_i - (o_j - o_i), received_j - called_j)
    y_ij = log(1 + (median d_ij now - median d_ij usual) / D),   D = mean of the usual medians

The later of both calls begins the message.  The rest of an offset cancels in the difference as far as the usual is
recent: it is of the last `BASELINE` messages.  The message must exceed a shaper's burst.  Without a past, a pair is
compared with the median of its peers, and clock offsets stay in.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from faults.fabric import Floats, Ints
from faults.observations import Observation, PointToPoint

WAITED_S: Final = 2e-4  # below the transit time of a message worth timing, above the wake-up of a waiting thread
QUICK: Final = 0.25  # the share of messages without other traffic on their path
MIN_WAITED: Final = 8  # messages of a pair
NORMAL: Final = 1.4826
MEDIAN_LOSS: Final = 1.2533  # sqrt(pi / 2): the standard error of a median against a mean's
BASELINE: Final = 128  # messages: 20 s of steps at 6 Hz, in which a clock drift of 50 ppm moves 1 ms
MIN_USUAL: Final = 10
MIN_DELAYS: Final = 3
# Between healthy windows of 2.5 s the medians of one pair differ by this, whatever the scatter inside.
MIN_SIGMA: Final = 0.08
MIN_DELAY_S: Final = 1e-4
MAX_RECENT: Final = 1024  # messages that are not old enough, while the job is stopped
KEPT_STEPS: Final = 8  # to wait for the other side of a pass
MAX_DELAY_S: Final = 10.0  # after a call; a longer time belongs to a step of this number before a restart
NO_TIME_S: Final = -1e-3  # below the time of any message by aligned clocks: one of them was set since


def ahead_of(ways_s: Mapping[tuple[int, int], float], *, nodes: int) -> Floats:
    """Return the clock offsets o_j - o_i by pair [i, j], from `_Pair.way_s`; NaN if messages do not determine them.

        m_ij = low quartile over the past of received_j - called_i,  where received_j - called_j > WAITED_S
             = w + o_j - o_i                                   w: transit time, equal for all
        minimise  sum (m_ij - w - (o_j - o_i))^2               sum o = 0

    The receiver's clock alone shows whether a message was waited for; a message that had arrived before shows only a
    late call.  A ring, or messages both ways, separate w from the offsets.  Transit times differ far less than NTP
    clocks.
    """
    offsets = np.full((nodes, nodes), np.nan)
    left = set(ways_s)
    while left:
        pairs = _joined(left)
        left -= pairs
        members = sorted({end for pair in pairs for end in pair})
        at = {node: place for place, node in enumerate(members)}
        ends = np.array([(at[source], at[target]) for source, target in sorted(pairs)])
        known_s = np.array([ways_s[pair] for pair in sorted(pairs)])
        found, known = _solved(ends, known_s, count=len(members))
        if known:
            offsets[np.ix_(members, members)] = found[None, :] - found[:, None]
    return offsets


def _solved(ends: Ints, known_s: Floats, *, count: int) -> tuple[Floats, bool]:
    """Return the offsets by the normal equations, and whether they are determined, up to their sum."""
    source, target = ends.T
    matrix, side = np.zeros((count + 1, count + 1)), np.zeros(count + 1)
    for at, sign in ((source, -1.0), (target, 1.0)):
        np.add.at(matrix, (at, at), 1.0)
        np.add.at(matrix, (at, count), sign)
        np.add.at(matrix, (count, at), sign)
        np.add.at(side, at, sign * known_s)
    np.add.at(matrix, (source, target), -1.0)
    np.add.at(matrix, (target, source), -1.0)
    matrix[count, count], side[count] = len(ends), known_s.sum()
    found, _, rank, _ = np.linalg.lstsq(matrix, side, rcond=None)
    return np.asarray(found[:-1], dtype=np.float64), bool(rank == count)


def _joined(pairs: set[tuple[int, int]]) -> set[tuple[int, int]]:
    ends, found = set(next(iter(sorted(pairs)))), set[tuple[int, int]]()
    while more := {pair for pair in pairs - found if ends & set(pair)}:
        found |= more
        ends |= {end for pair in more for end in pair}
    return found


class _Taken(NamedTuple):
    """One message: seconds since each of both calls, by two clocks and by one."""

    since_sent_s: float
    since_called_s: float


@dataclass
class _Pair:
    recent: deque[tuple[float, _Taken]] = field(default_factory=lambda: deque(maxlen=MAX_RECENT))
    usual: deque[_Taken] = field(default_factory=lambda: deque(maxlen=BASELINE))
    known: tuple[int, float, float, float] = (0, 0.0, 0.0, 0.0)  # messages counted, clocks apart, median, scatter
    taken: int = 0

    def extend_baseline(self, until_s: float, *, forget: bool) -> None:
        while self.recent and self.recent[0][0] < until_s:
            _, message = self.recent.popleft()
            if not forget:
                self.usual.append(message)
                self.taken += 1

    def now(self, from_s: float, to_s: float, *, apart_s: float) -> tuple[float, float, int] | None:
        inside = [message for at_s, message in self.recent if from_s < at_s <= to_s]
        if len(inside) < MIN_DELAYS:
            return None
        return *_middle(_delays(inside, apart_s)), len(inside)

    def baseline(self, *, apart_s: float) -> tuple[float, float] | None:
        """Return median and scatter of the past, recomputed with every tenth message."""
        if len(self.usual) < MIN_USUAL:
            return None
        count, apart_then_s, *_ = self.known
        if count == 0 or apart_s != apart_then_s or self.taken >= min(1.1 * count, count + BASELINE // 10):
            self.known = (self.taken, apart_s, *_middle(_delays(self.usual, apart_s)))
        return self.known[2:]

    def way_s(self) -> float | None:
        """Return the time of a message that the receiver waited for, by both clocks."""
        waited = [sent_s for sent_s, called_s in self.usual if called_s > WAITED_S]
        return float(np.quantile(waited, QUICK)) if len(waited) >= MIN_WAITED else None


class Delays:
    """Delays of the messages of all pairs; without a suspicion, messages older than `ripe_s` join the baseline."""

    def __init__(self, nodes: int, *, keep_s: float, baseline_age_s: float) -> None:
        self._nodes, self._keep_s, self._baseline_age_s = nodes, keep_s, baseline_age_s
        self._passes: dict[tuple[int, int], _Pair] = {}
        self._called: dict[tuple[int, int], tuple[float, int]] = {}  # (step, rank) -> called, node
        self._waiting: dict[tuple[int, int], tuple[int, float, float]] = {}  # (step, source) -> node, called, received
        self._step = 0  # the newest
        self._taken = 0  # usual messages at the last estimate of the clocks
        self._apart_s = np.full((nodes, nodes), np.nan)

    def observe(self, observation: Observation) -> None:
        """Add a pass; a delay needs both sides."""
        values = observation.values
        if isinstance(values, PointToPoint) and observation.rank is not None and values.step is not None:
            self._pass(observation.rank, observation.node, values, values.step)

    def extend_baseline(self, now_s: float, *, suspected: bool) -> None:
        """Move old messages into the baseline; during a suspicion discard them."""
        until_s = now_s - (self._keep_s if suspected else self._baseline_age_s)
        for pair in self._passes.values():
            pair.extend_baseline(until_s, forget=suspected)

    def slowdowns(self, from_s: float, to_s: float) -> tuple[Floats, Floats]:
        pairs, known_s = self._passes, self.clock_offsets_s()
        apart_s = np.nan_to_num(known_s)
        y, sigma = np.full((2, self._nodes, self._nodes), np.nan)
        now = {
            pair: found
            for pair, each in pairs.items()
            if (found := each.now(from_s, to_s, apart_s=float(apart_s[pair]))) is not None
        }
        usual = {pair: base for pair in now if (base := pairs[pair].baseline(apart_s=float(apart_s[pair]))) is not None}
        if not now:
            return y, sigma
        typical_s = max(MIN_DELAY_S, float(np.mean([known[0] for known in (usual or now).values()])))
        peers_s = float(np.median([middle_s for middle_s, _, _ in now.values()]))
        for pair, (middle_s, scatter_s, count) in now.items():
            before_s, before_scatter_s = usual.get(pair, (peers_s, scatter_s))
            if np.isfinite(known_s[pair]) and min(before_s, middle_s) < NO_TIME_S:
                continue
            ratio = max(0.1, 1.0 + (middle_s - before_s) / typical_s)
            y[pair] = np.log(ratio)
            noise = MEDIAN_LOSS * max(scatter_s / ratio, before_scatter_s) / typical_s / np.sqrt(count)
            sigma[pair] = np.hypot(MIN_SIGMA, noise)
        return y, sigma

    def clock_offsets_s(self) -> Floats:
        """Return the clock offset of j against i, by pair [i, j]; NaN if messages do not determine it."""
        taken = sum(pair.taken for pair in self._passes.values())
        if taken >= min(1.1 * self._taken, self._taken + len(self._passes) * (BASELINE // 10)) and taken > self._taken:
            self._taken = taken
            ways = {pair: way_s for pair, each in self._passes.items() if (way_s := each.way_s()) is not None}
            self._apart_s = ahead_of(ways, nodes=self._nodes)
        return self._apart_s

    @property
    def has_history(self) -> bool:
        """Return whether most pairs have a past of their own."""
        known = [len(pair.usual) >= MIN_USUAL for pair in self._passes.values()]
        return bool(known) and sum(known) * 2 > len(known)

    def _pass(self, rank: int, node: int, values: PointToPoint, step: int) -> None:
        self._forget(step)
        self._called[step, rank] = (values.called_s, node)
        self._waiting[step, values.source] = (node, values.called_s, values.received_s)
        for source in (rank, values.source):
            self._match(step, source)

    def _forget(self, step: int) -> None:
        """Discard old steps at a new step; discard all after a restart from an earlier step."""
        if step > self._step:
            for table in (self._called, self._waiting):
                for key in [key for key in table if key[0] < step - KEPT_STEPS]:
                    del table[key]
        elif step < self._step - KEPT_STEPS:
            self._called.clear()
            self._waiting.clear()
        else:
            return
        self._step = step

    def _match(self, step: int, source: int) -> None:
        sent, got = self._called.get((step, source)), self._waiting.get((step, source))
        if sent is None or got is None:
            return
        target, called_s, received_s = got
        if received_s - sent[0] > MAX_DELAY_S:
            del self._called[step, source]
            return
        del self._waiting[step, source]
        self._add(received_s, sent[1], target, _Taken(received_s - sent[0], received_s - called_s))

    def _add(self, at_s: float, source: int, target: int, message: _Taken) -> None:
        if source == target or not (0 <= source < self._nodes and 0 <= target < self._nodes):
            return
        pair = self._passes.setdefault((source, target), _Pair())
        if not pair.recent or at_s >= pair.recent[-1][0]:
            pair.recent.append((at_s, message))


def _delays(messages: Iterable[_Taken], apart_s: float) -> Floats:
    return np.array([min(sent_s - apart_s, called_s) for sent_s, called_s in messages])


def _middle(values: Floats) -> tuple[float, float]:
    middle = float(np.median(values))
    return middle, NORMAL * float(np.median(np.abs(values - middle)))
