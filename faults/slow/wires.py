"""Slow wires of a live job: windows of socket counters against baselines, the fit, and the gates it has to pass.

Pace.  What an entity costs is the busy time that its slowest pair would be spared:
    saved_e = sum over classes of max over pairs of e of busy_ij / window (1 - exp(-a_ij)),  ratio = 1 / (1 - saved)
with a_ij the part of the slowdown that the fit gives to e.
The slowest wire sets the pace of a collective; the others wait for it and look slow too (their busy time is held up by
what they wait for).  Whoever would save less than `pacing_share` of what the worst one would is not accused, nor is
anybody at one end of a worse one: a link into a node that cannot pass on what it gets is held up first.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

import numpy as np

from faults.fabric import Floats, Ints
from faults.slow.baselines import History, Usual, classes, common, on_the_wire, peers
from faults.slow.foreign import foreign_pairs, touched
from faults.slow.localise import Entity, explain
from faults.slow.settings import SlowSettings
from faults.slow.sockets import ACKED, TICK_US, Sockets, Span

STARVED: Final = 0.3  # of the busy time: then the receiver's process or the sender's buffer is the brake, not the wire


@dataclass(frozen=True, slots=True)
class Slow:
    """One accused entity in one window."""

    entity: Entity
    saved: float  # share of the window's time
    own: bool  # against its own history; else against its peers

    @property
    def key(self) -> Hashable:
        """What persistence counts: a NIC whatever its direction, a link."""
        return (self.entity.node, self.entity.peer)


@dataclass(frozen=True, slots=True)
class Looked:
    """What one window said."""

    slow: tuple[Slow, ...]
    bandwidth_mbit: Floats
    foreign: tuple[tuple[int, int], ...]
    unread: tuple[int, ...]  # nodes whose processes do not take what arrives


class Wires:
    """Baselines of all pairs, and the fit of the window that ends now."""

    def __init__(self, sockets: Sockets, settings: SlowSettings) -> None:
        self._sockets, self._settings = sockets, settings
        overlap = int(np.ceil(settings.window_s / settings.every_s))
        self._history = History(
            int(settings.history_s / settings.every_s), overlap + 2, settings.window_s / settings.every_s
        )
        self._usual_rate: Floats | None = None  # bytes per second and pair, without foreign ones
        self._foreign_until_s = -np.inf
        self._masked = np.zeros((sockets.nodes, sockets.nodes), dtype=np.bool_)

    @property
    def has_history(self) -> bool:
        """Whether pairs can be held against their own past."""
        return len(self._history) >= self._settings.enough_windows

    def look(self, now_s: float, *, suspected: bool) -> Looked | None:
        """The window that ends now."""
        s = self._settings
        span = self._sockets.span(now_s - s.window_s, now_s)
        if span is None:
            return None
        mbit = span.bandwidth_mbit(s.busy_ticks)
        foreign = self._foreign(span, mbit, now_s)
        least_us = np.maximum(span.busy_us, s.busy_ticks * TICK_US)
        unread = span.rwnd_us > STARVED * least_us
        starved = unread | (span.sndbuf_us > STARVED * least_us)
        log = np.log(np.where(self._masked | starved, np.nan, mbit))
        kind = classes(self._carried())
        kind = np.where(on_the_wire(log, kind), kind, -1)
        slow = self._accused(log, kind, span)
        accused = np.zeros_like(self._masked)
        for each in slow:
            accused |= each.entity.where(len(log))
        self._history.add(log, accused=accused, suspected=suspected or bool(foreign))
        return Looked(slow, mbit, foreign, tuple(int(j) for j in np.flatnonzero(unread.any(axis=0))))

    def _foreign(self, span: Span, mbit: Floats, now_s: float) -> tuple[tuple[int, int], ...]:
        """Finds foreign bytes, and masks what they touch until the last of them has left the window."""
        s = self._settings
        rate = span.bytes / np.where(span.seconds > 0, span.seconds, np.nan)[:, None]
        fastest = float(np.nanmax(mbit)) if np.isfinite(mbit).any() else float("nan")
        usual = rate * 0.0 if self._usual_rate is None else self._usual_rate * span.seconds[:, None]
        foreign = foreign_pairs(span, usual, fastest, s.foreign_share)
        if foreign.any():
            self._masked = touched(foreign)
            self._foreign_until_s = now_s + s.every_s
        elif now_s > self._foreign_until_s:
            self._masked = np.zeros_like(self._masked)
            before = self._usual_rate
            self._usual_rate = (
                rate if before is None else np.where(np.isfinite(rate), 0.9 * before + 0.1 * rate, before)
            )
        return tuple((int(i), int(j)) for i, j in np.argwhere(foreign))

    def _carried(self) -> Floats:
        """Bytes of each pair since its connection was opened."""
        return np.array(
            [row[-1].peers[:, ACKED] if row else np.full(self._sockets.nodes, np.nan) for row in self._sockets.rows]
        )

    def _accused(self, log: Floats, kind: Ints, span: Span) -> tuple[Slow, ...]:
        """By own history and, for what was slow before there was any, by peers; each entity once."""
        found: dict[Hashable, Slow] = {}
        if self.has_history:
            found = {
                slow.key: slow
                for slow in self._fitted(self._history.usual(kind, _busy_share(span)), log, kind, span, own=True)
            }
        for slow in self._fitted(peers(log, kind, _busy_share(span)), log, kind, span, own=False):
            found.setdefault(slow.key, slow)
        return tuple(self._pacing(list(found.values())))

    def _fitted(self, usual: Usual, log: Floats, kind: Ints, span: Span, *, own: bool) -> list[Slow]:
        slowdown = np.where(kind >= 0, usual.log_mbit - log, np.nan)
        slowdown = slowdown - common(slowdown, kind)
        entities = explain(slowdown, usual.sigma, false_per_window=self._settings.false_per_window)
        entities = tuple(e for e in entities if e.slowdown >= np.log(self._settings.least_slowdown))
        return self._pacing([Slow(e, _saved(e, kind, span), own) for e in entities])

    def _pacing(self, found: list[Slow]) -> list[Slow]:
        """Those of them that set the pace, the worst first; own history before peers."""
        ordered = sorted(found, key=lambda slow: (not slow.own, -slow.saved))
        return [slow for at, slow in enumerate(ordered) if slow.saved > 0 and self._sets_pace(slow, ordered[:at])]

    def _sets_pace(self, slow: Slow, worse: list[Slow]) -> bool:
        """Whether it would not merely be waiting for a worse one."""
        if any(slow.entity.ends & each.entity.ends for each in worse):
            return False
        return slow.saved >= self._settings.pacing_share * max((each.saved for each in worse), default=0.0)


def _saved(entity: Entity, kind: Ints, span: Span) -> float:
    """Share of the window that would be spared without it, by what the fit gives to it alone."""
    spared = _busy_share(span) * (1.0 - np.exp(-entity.amplitudes(len(kind))))
    parts = [np.max(spared[kind == number], initial=0.0) for number in np.unique(kind[kind >= 0])]
    return float(min(0.95, np.sum(parts)))


def _busy_share(span: Span) -> Floats:
    seconds = np.where(span.seconds > 0, span.seconds, np.nan)[:, None]
    return np.clip(np.nan_to_num(span.busy_us / (1e6 * seconds)), 0.0, 1.0)
