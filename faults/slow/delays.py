"""One-way delays of passes, as slowdowns of their pairs against their own past.

    d_ij = received_j - max(called_i, called_j)        o_j - o_i too long, when the clocks are off by o
    y_ij = log(1 + (median d_ij now - median d_ij usual) / D),   D = mean of the usual medians

A constant offset of clocks cancels in the difference, and in D where as many pairs end at a node as begin there (a
ring).  A slow drift cancels as far as the usual is recent: it is that of the last `BASELINE` messages.  The message
must exceed what a shaper lets through at once.  Without a past a pair is held against the median of its peers; there
clock offsets stay in.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from faults.fabric import Floats
from faults.observations import Observation, Pass

NORMAL: Final = 1.4826
MEDIAN_LOSS: Final = 1.2533  # sqrt(pi / 2): the standard error of a median against a mean's
BASELINE: Final = 128  # messages: 20 s of steps at 6 Hz, in which a clock that drifts by 50 ppm moves 1 ms
FEWEST_USUAL: Final = 10
FEWEST: Final = 3
# Between windows of 2.5 s in health medians of one pair differ by this, whatever the messages inside scatter.
LEAST_SIGMA: Final = 0.08
LEAST_DELAY_S: Final = 1e-4
KEPT_STEPS: Final = 8  # in which the other side of a pass is waited for


@dataclass
class _Pair:
    recent: deque[tuple[float, float]] = field(default_factory=deque)  # at, seconds
    usual: deque[float] = field(default_factory=lambda: deque(maxlen=BASELINE))
    known: tuple[int, float, float] = (0, 0.0, 0.0)  # messages counted, median, scatter
    taken: int = 0

    def ripen(self, until_s: float, *, forget: bool) -> None:
        """Messages of before then become usual, or are forgotten."""
        while self.recent and self.recent[0][0] < until_s:
            _, delay_s = self.recent.popleft()
            if not forget:
                self.usual.append(delay_s)
                self.taken += 1

    def now(self, from_s: float, to_s: float) -> tuple[float, float, int] | None:
        """Middle, scatter and count of the messages of a stretch of time."""
        inside = np.array([delay_s for at_s, delay_s in self.recent if from_s < at_s <= to_s])
        if inside.size < FEWEST:
            return None
        return *_middle(inside), inside.size

    def baseline(self) -> tuple[float, float] | None:
        """Median and scatter of the past, renewed with every tenth message."""
        if len(self.usual) < FEWEST_USUAL:
            return None
        if self.known[0] == 0 or self.taken >= 1.1 * self.known[0] or self.taken >= self.known[0] + BASELINE // 10:
            self.known = (self.taken, *_middle(np.array(self.usual)))
        return self.known[1:]


class Delays:
    """Messages of all pairs; what is older than `ripe_s` becomes usual while nothing is suspected."""

    def __init__(self, nodes: int, *, keep_s: float, ripe_s: float) -> None:
        self._nodes, self._keep_s, self._ripe_s = nodes, keep_s, ripe_s
        self._passes: dict[tuple[int, int], _Pair] = {}
        self._called: dict[tuple[int, int], tuple[float, int]] = {}  # (step, rank) -> called, node
        self._waiting: dict[tuple[int, int], tuple[int, float, float]] = {}  # (step, source) -> node, called, received

    def see(self, seen: Observation) -> None:
        """Take a pass: both sides are needed."""
        values = seen.values
        if isinstance(values, Pass) and seen.rank is not None and values.step is not None:
            self._pass(seen.rank, seen.node, values, values.step)

    def ripen(self, now_s: float, *, suspected: bool) -> None:
        """Let old messages become usual; while a fault is suspected they are forgotten."""
        until_s = now_s - (self._keep_s if suspected else self._ripe_s)
        for pair in self._passes.values():
            pair.ripen(until_s, forget=suspected)

    def slowdowns(self, from_s: float, to_s: float) -> tuple[Floats, Floats]:
        """y and its standard error, NaN where too few messages came."""
        pairs = self._passes
        y, sigma = np.full((2, self._nodes, self._nodes), np.nan)
        now = {pair: found for pair, each in pairs.items() if (found := each.now(from_s, to_s)) is not None}
        usual = {pair: base for pair in now if (base := pairs[pair].baseline()) is not None}
        if not now:
            return y, sigma
        typical_s = max(LEAST_DELAY_S, float(np.mean([known[0] for known in (usual or now).values()])))
        peers_s = float(np.median([middle_s for middle_s, _, _ in now.values()]))
        for pair, (middle_s, scatter_s, count) in now.items():
            before_s, before_scatter_s = usual.get(pair, (peers_s, scatter_s))
            ratio = max(0.1, 1.0 + (middle_s - before_s) / typical_s)
            y[pair] = np.log(ratio)
            noise = MEDIAN_LOSS * max(scatter_s / ratio, before_scatter_s) / typical_s / np.sqrt(count)
            sigma[pair] = np.hypot(LEAST_SIGMA, noise)
        return y, sigma

    @property
    def has_history(self) -> bool:
        """Whether most pairs have a past of their own."""
        known = [len(pair.usual) >= FEWEST_USUAL for pair in self._passes.values()]
        return bool(known) and sum(known) * 2 > len(known)

    def _pass(self, rank: int, node: int, values: Pass, step: int) -> None:
        self._called[step, rank] = (values.called_s, node)
        self._waiting[step, values.source] = (node, values.called_s, values.received_s)
        for source in (rank, values.source):
            self._match(step, source)
        for table in (self._called, self._waiting):
            if len(table) > KEPT_STEPS * 2 * self._nodes:
                for key in [k for k in table if k[0] < step - KEPT_STEPS]:
                    del table[key]

    def _match(self, step: int, source: int) -> None:
        sent, got = self._called.get((step, source)), self._waiting.get((step, source))
        if sent is None or got is None:
            return
        del self._waiting[step, source]
        target, called_s, received_s = got
        self._add(received_s, sent[1], target, received_s - max(sent[0], called_s))

    def _add(self, at_s: float, source: int, target: int, delay_s: float) -> None:
        if source == target or not (0 <= source < self._nodes and 0 <= target < self._nodes):
            return
        pair = self._passes.setdefault((source, target), _Pair())
        if not pair.recent or at_s >= pair.recent[-1][0]:
            pair.recent.append((at_s, delay_s))


def _middle(values: Floats) -> tuple[float, float]:
    middle = float(np.median(values))
    return middle, NORMAL * float(np.median(np.abs(values - middle)))
