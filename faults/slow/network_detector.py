"""Slow edges of a live job: windows of socket counters against baselines, the fit, and the tests that it has to pass.

The slowest edge sets the speed of a collective; the others wait for it and are slow too.  An entity that saves less
than `pacing_share` of the worst is dropped, and so is one at an end of a worse one: a link into a node that cannot
forward is held up first.  docs/explanation/faults/slow.md, "Slowest edge and harm"
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from faults.diagnosis import Direction
from faults.fabric import Floats, Ints
from faults.slow.baselines import History, Usual, classes, common, current_noise, on_the_wire, peers, row_noise_factor
from faults.slow.merge import MAX_AT_START, Slow, joined
from faults.slow.one_way_delays import Delays
from faults.slow.probe_likelihood import View
from faults.slow.settings import SlowSettings
from faults.slow.sockets import ACKED, TICK_US, Sockets, Span
from faults.slow.sparse_fit import Entity, Observed, count_disjoint_pairs, explain, gains, log_likelihoods

LONGER: Final = 0.72  # of the noise: of twice the window (measured: 0.71 of long flows, 0.73 of short messages)
STARVED: Final = 0.3  # of the busy time: then the receiver's process or the sender's buffer is the limit


def foreign_pairs(span: Span, usual_rate: Floats, fastest_mbit: float, share: float) -> NDArray[np.bool_]:
    """Return pairs with foreign traffic: bytes that share a node's NIC and resemble a slow NIC.

    Such a pair has more connections than the job opened (the median over pairs), and its bytes exceed, or exceeded
    until they closed, its usual rate (bytes per second; NaN: none) by at least `share` of the fastest pair's bandwidth.
    Either end shows a connection, so the peer's rows show that of a node without an agent.
    """
    connections = np.fmax(span.connections, span.connections.T)
    observed_pairs = np.isfinite(connections)
    if not observed_pairs.any() or not np.isfinite(fastest_mbit):
        return np.zeros(span.bytes.shape, dtype=np.bool_)
    rate = span.rate()
    extra = observed_pairs & (connections > float(np.median(connections[observed_pairs])))
    more_mbit = 8e-6 * (rate - np.nan_to_num(usual_rate))
    closed = ~np.isfinite(rate)  # its count fell with the connection, so the amount is unknown
    flagged: NDArray[np.bool_] = extra & (closed | (more_mbit >= share * fastest_mbit))
    return flagged


def touched(foreign: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return all pairs that share a node with foreign bytes: these explain any slowness there, acknowledgements too."""
    busy: NDArray[np.bool_] = np.logical_or(foreign.any(axis=1), foreign.any(axis=0))
    shared: NDArray[np.bool_] = busy[:, None] | busy[None, :]
    return shared


@dataclass(frozen=True, slots=True)
class _Window:
    log: Floats  # of the bandwidth in use; NaN if it is no measure of the network
    busy: Floats
    change: Floats  # from one half to the other
    unread: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Evaluated:
    slow: tuple[Slow, ...]
    bandwidth_mbit: Floats
    usual_mbit: Floats
    foreign: tuple[tuple[int, int], ...]
    unread: tuple[int, ...]  # nodes whose processes do not read their received bytes
    unobserved: frozenset[int] = frozenset()  # nodes without counters of their own


class NetworkDetector:
    """A detector with baselines of all pairs and a fit of the window that ends now."""

    def __init__(self, sockets: Sockets, settings: SlowSettings) -> None:
        self._sockets, self._settings = sockets, settings
        overlap = int(np.ceil(settings.window_s / settings.every_s))
        self._history = History(
            sockets.nodes, int(settings.history_s / settings.every_s), overlap + 2, settings.window_s / settings.every_s
        )
        self._usual_rate: Floats | None = None  # bytes per second and pair, without foreign ones
        self._foreign_until_s = -np.inf
        self._masked = np.zeros((sockets.nodes, sockets.nodes), dtype=np.bool_)

    @property
    def has_history(self) -> bool:
        return len(self._history) >= self._settings.enough_windows

    def evaluate(
        self,
        now_s: float,
        delays: Delays,
        probed: Sequence[View],
        *,
        suspected: bool,
        false_per_window: float,
    ) -> Evaluated | None:
        """Evaluate the windows that end now: a quick one, and one twice as long with less noise."""
        s = self._settings
        span = self._sockets.span(now_s - s.window_s, now_s, counted=True)
        if span is None:
            return None
        mbit = span.bandwidth_mbit(s.busy_ticks)
        foreign = self._foreign(span, mbit, now_s)
        kind = classes(self._carried())
        short = self._window(span, self._changed(now_s))
        kind = np.where(on_the_wire(short.log, kind), kind, -1)
        views = [(short, now_s - s.window_s, 1.0)]
        longer = self._sockets.span(now_s - 2 * s.window_s, now_s)
        if longer is not None and self.has_history:
            views.append((self._window(longer, LONGER * short.change), now_s - 2 * s.window_s, LONGER))
        usual = self._history.usual(kind, short.busy) if self.has_history else None
        slow = self._findings(views, usual, kind, delays, probed, now_s=now_s, false_rate=false_per_window)
        suspects = np.zeros_like(self._masked)
        for each in slow:
            suspects |= each.entity.where(len(mbit))
        self._history.add(short.log, suspects=suspects, suspected=suspected or bool(foreign))
        unread = tuple(int(j) for j in np.flatnonzero(short.unread.any(axis=0)))
        unobserved = frozenset(int(i) for i in np.flatnonzero(~np.isfinite(span.seconds)))
        return Evaluated(slow, mbit, mbit if usual is None else np.exp(usual.log_mbit), foreign, unread, unobserved)

    def _changed(self, now_s: float) -> Floats:
        s = self._settings
        half_s = s.window_s / 2
        halves = [self._sockets.span(now_s - k * half_s, now_s - (k - 1) * half_s) for k in (2, 1)]
        logs = [
            np.full(self._masked.shape, np.nan) if h is None else np.log(h.bandwidth_mbit(s.busy_ticks)) for h in halves
        ]
        return np.asarray(logs[1] - logs[0])

    def _window(self, span: Span, change: Floats) -> _Window:
        s = self._settings
        mbit = span.bandwidth_mbit(s.busy_ticks)
        min_us = np.maximum(span.busy_us, s.busy_ticks * TICK_US)
        unread = span.rwnd_us > STARVED * min_us
        starved = unread | (span.sndbuf_us > STARVED * min_us)
        return _Window(np.log(np.where(self._masked | starved, np.nan, mbit)), _busy_share(span), change, unread)

    def _foreign(self, span: Span, mbit: Floats, now_s: float) -> tuple[tuple[int, int], ...]:
        """Find foreign bytes, and mask the affected pairs until the bytes have left the window."""
        s = self._settings
        rate = span.rate()
        fastest = float(np.nanmax(mbit)) if np.isfinite(mbit).any() else float("nan")
        usual = np.zeros_like(rate) if self._usual_rate is None else self._usual_rate
        foreign = foreign_pairs(span, usual, fastest, s.foreign_share)
        if foreign.any():
            self._masked = touched(foreign)
            self._foreign_until_s = now_s + s.every_s
        elif now_s > self._foreign_until_s:
            self._masked = np.zeros_like(self._masked)
            before = (
                rate if self._usual_rate is None else np.where(np.isfinite(self._usual_rate), self._usual_rate, rate)
            )
            self._usual_rate = np.where(np.isfinite(rate), 0.9 * before + 0.1 * rate, before)
        return tuple((int(i), int(j)) for i, j in np.argwhere(foreign))

    def _carried(self) -> Floats:
        return np.array(
            [row[-1].peers[:, ACKED] if row else np.full(self._sockets.nodes, np.nan) for row in self._sockets.rows]
        )

    def _findings(
        self,
        views: list[tuple[_Window, float, float]],
        usual: Usual | None,
        kind: Ints,
        delays: Delays,
        probed: Sequence[View],
        *,
        now_s: float,
        false_rate: float,
    ) -> tuple[Slow, ...]:
        """Return findings by probes, by own history and, for faults older than it, by peers; each place once."""
        found: dict[Hashable, Slow] = {}
        by_own: list[Observed] = []
        if usual is not None:
            for window, from_s, quieter in views:
                passes = delays.slowdowns(from_s, now_s)
                observed = _observed(window, Usual(usual.log_mbit, quieter * usual.sigma), kind, passes)
                by_own.append(observed)
                for slow in self._fitted(observed, window, kind, false_rate, own=True):
                    found.setdefault(slow.key, slow)
        window, from_s, _ = views[0]
        observed = _observed(window, peers(window.log, kind, window.busy), kind, delays.slowdowns(from_s, now_s))
        for slow in self._fitted(observed, window, kind, self._settings.false_per_window, own=False):
            found.setdefault(slow.key, slow)

        def make_finding(entity: Entity, own: bool) -> Slow:  # noqa: FBT001 - of an entity and how it was found
            beside = log_likelihoods(by_own[0], entity, []) if by_own else {}
            return Slow(entity, _saved(entity, kind, window.busy), own, beside, probed=True)

        def of_sockets() -> dict[Direction, Floats]:
            """Return the gain of each hypothesis in the window that supports it more."""
            tables = [gains(observed) for observed in by_own]
            return {way: np.maximum.reduce([table[way] for table in tables]) for way in tables[0]} if tables else {}

        return tuple(
            self._pacing(
                joined(
                    list(found.values()),
                    probed,
                    false_per_window=false_rate,
                    of_sockets=of_sockets,
                    make_finding=make_finding,
                )
            )
        )

    def _fitted(
        self, observed: Observed, window: _Window, kind: Ints, false_per_window: float, *, own: bool
    ) -> list[Slow]:
        entities = explain(observed, false_per_window=false_per_window, false_beside=self._settings.false_per_window)
        entities = tuple(e for e in entities if e.slowdown >= np.log(self._settings.min_slowdown))
        if not own:
            entities = tuple(
                e for e in entities if count_disjoint_pairs(observed.sockets > e.slowdown / 2) <= MAX_AT_START
            )
        found = [Slow(e, _saved(e, kind, window.busy), own) for e in entities]
        kept = self._pacing(found)
        return [
            replace(
                slow,
                log_likelihoods=log_likelihoods(observed, slow.entity, [e for e in entities if e is not slow.entity]),
            )
            for slow in kept
        ]

    def _pacing(self, found: list[Slow]) -> list[Slow]:
        """Return the findings that set the speed, the worst first; probes before own history before peers."""
        ordered = sorted(found, key=lambda slow: (not slow.probed, not slow.own, -slow.saved))
        return [slow for at, slow in enumerate(ordered) if slow.saved > 0 and self._sets_pace(slow, ordered[:at])]

    def _sets_pace(self, slow: Slow, worse: list[Slow]) -> bool:
        """Return whether the finding does not merely wait for a worse one."""
        if any(slow.entity.ends & each.entity.ends for each in worse):
            return False
        return slow.saved >= self._settings.pacing_share * max((each.saved for each in worse), default=0.0)


def _observed(window: _Window, usual: Usual, kind: Ints, passes: tuple[Floats, Floats]) -> Observed:
    """Return the slowdowns beyond the common part of a class, with the current noise."""
    slowdown = np.where(kind >= 0, usual.log_mbit - window.log, np.nan)
    slowdown = slowdown - common(slowdown, kind)
    delay, doubt = passes
    alike = np.where(np.isfinite(delay), 0, -1)
    delay = delay - common(delay, alike)
    sigma = current_noise(slowdown, window.change, usual.sigma, kind) * row_noise_factor(kind, window.busy)
    return Observed(slowdown, sigma, delay, doubt, kind)


def _saved(entity: Entity, kind: Ints, busy: Floats) -> float:
    spared = busy * (1.0 - np.exp(-entity.amplitudes(len(kind))))
    parts = [np.max(spared[kind == number], initial=0.0) for number in np.unique(kind[kind >= 0])]
    return float(min(0.95, np.sum(parts)))


def _busy_share(span: Span) -> Floats:
    seconds = np.where(span.seconds > 0, span.seconds, np.nan)[:, None]
    return np.clip(np.nan_to_num(span.busy_us / (1e6 * seconds)), 0.0, 1.0)
