"""Whether servers do what they were told: read-backs against orders, all servers at once.

    right      enforced = told, within the tolerance
    reloaded   the driver's count of loads differs: whatever was told is forgotten
    late       not right, and the order is older than its delay and a margin, by the server's own newer word;
               or right before and not now; or not heard for long
    deaf       late more than `most_tries` times in a row, or not heard
    landed     not right, but what it was sent before it was told anew now holds: the newer order has its time from here

An order that is under way is not overtaken: over a path of 40 s the newest wish follows when the older one has landed,
and a server that is told anew twice a minute is not deaf for that.  Late servers are told again, deaf ones ever more
rarely: at most one order per server per waiting time.
"""

from typing import NamedTuple

import numpy as np

from power.arrays import Bools, Floats, Ints
from power.guard.row import Row
from power.guard.settings import GuardSettings
from power.guard.states import Event, Kind, Mode, Told
from power.guard.telemetry import BRAKE, EPOCH, NOBODY, PROMPT_CLOCK, TOKEN_CLOCK, Servers

SHOWN = -np.inf  # a `due_s` whose order has been seen to hold
MAX_DOUBLINGS = 10


class Finding(NamedTuple):
    """What the read-backs came to."""

    told: Told
    late_clocks: Ints  # tell these their clocks again
    late_brake: Ints  # tell these again to brake, or to let go
    reloaded: Ints
    deaf: Ints  # since now
    heard: Ints  # since now

    @property
    def quiet(self) -> bool:
        """Nothing to tell, and nobody to be told."""
        return not any(which.size for which in self[1:])


def events_of(finding: Finding, *, mode: Mode, now_s: float) -> tuple[Event, ...]:
    """What there is to tell about a finding."""
    if finding.quiet:
        return ()
    told = (
        (Kind.DRIVER_RELOADED, finding.reloaded),
        (Kind.TOLD_AGAIN, np.union1d(finding.late_clocks, finding.late_brake)),
        (Kind.DEAF, finding.deaf),
        (Kind.HEARD, finding.heard),
    )
    return tuple(Event(kind, now_s, mode, servers=tuple(which.tolist())) for kind, which in told if which.size)


def _quiet(told: Told) -> Finding:
    return Finding(told, NOBODY, NOBODY, NOBODY, NOBODY, NOBODY)


def nothing_told(servers: int) -> Told:
    """Before the first order."""
    return Told(
        expected=np.vstack([np.full((2, servers), np.nan), np.zeros(servers), np.full(servers, np.nan)]),
        sent=np.full((2, servers), np.nan),
        due_s=np.full(servers, SHOWN),
        tries=np.zeros(servers, dtype=np.int64),
        deaf=np.zeros(servers, dtype=np.bool_),
        silent=np.zeros(servers, dtype=np.bool_),
        braked=False,
        open=True,
        stacked=False,
        reserve_w=0.0,
    )


class Confirming:
    """Judges read-backs for one row."""

    def __init__(self, *, row: Row, settings: GuardSettings, command_delay_s: float) -> None:
        self._row = row
        self._settings = settings
        self._clock_wait_s = command_delay_s + settings.margin_s
        self._brake_wait_s = settings.brake_s + settings.margin_s
        self._shown, self._none = np.full(len(row), SHOWN), np.zeros(len(row), dtype=np.int64)
        self._nobody = np.zeros(len(row), dtype=np.bool_)

    def told_clocks(self, told: Told, clocks: Floats, *, now_s: float) -> tuple[Told, Ints]:
        """The orders after a change of setting, and the servers that it concerns."""
        changed = (told.expected[:BRAKE] != clocks).any(axis=0)
        expected = told.expected.copy()
        expected[:BRAKE] = clocks
        return self._due(told, expected, changed, now_s + self._clock_wait_s), np.flatnonzero(changed)

    def told_brake(self, told: Told, *, on: bool, now_s: float) -> Told:
        """The orders after engaging the brake or letting it go."""
        expected = told.expected.copy()
        expected[BRAKE] = float(on)
        everybody = np.ones(len(self._row), dtype=np.bool_)
        # An order to brake starts its own time, whatever was due before.
        shown = told._replace(due_s=np.full(len(self._row), SHOWN), braked=on)
        return self._due(shown, expected, everybody, now_s + self._brake_wait_s)

    def check(self, told: Told, servers: Servers, *, now_s: float) -> Finding | None:
        """What to do about what servers say; None when all is as it was."""
        silent_before_s = now_s - self._settings.silent_after_s
        if servers.read_at_s.min() >= silent_before_s:
            same = servers.held == told.expected
            if same.all() and not told.deaf.any():
                return self._all_right(told) if told.open else None
            if same[BRAKE:].all() and not told.stacked and not told.tries.any() and not told.deaf.any():
                after = self._waiting(told, servers.held, now_s=now_s)
                if after is not None:
                    return None if after is told else _quiet(after)
        return self._judged(told, servers, now_s=now_s, silent=servers.read_at_s < silent_before_s)

    def _all_right(self, told: Told) -> Finding:
        """All do as they were last told, and none was deaf."""
        after = told._replace(sent=told.expected[:BRAKE], due_s=self._shown, tries=self._none, open=False)
        return _quiet(after._replace(stacked=False, silent=self._nobody, reserve_w=0.0))

    def _waiting(self, told: Told, held: Floats, *, now_s: float) -> Told | None:
        """Where all speak and none has failed: orders that have shown are done, others have time; else None."""
        right = self._near(told.expected, held)
        due_s = np.where(right, SHOWN, told.due_s)
        left = due_s != SHOWN
        if (left | right).all() and (due_s[left] > now_s).all():
            unchanged = (due_s == told.due_s).all() and told.open is bool(left.any())
            return told if unchanged else told._replace(due_s=due_s, open=bool(left.any()))
        return None

    def _judged(self, told: Told, servers: Servers, *, now_s: float, silent: Bools) -> Finding:
        held = servers.held
        expected, reloaded = self._epochs(told.expected, held, silent)
        right = self._near(expected, held) & (held[BRAKE] == expected[BRAKE]) & ~silent
        switch = held[BRAKE] != expected[BRAKE]
        wait_s = np.where(switch, self._brake_wait_s, self._clock_wait_s)
        # Only a word newer than the moment the order should have shown is evidence against the server.
        spoke_since = servers.read_at_s >= told.due_s - self._settings.margin_s
        landed = self._landed(told, held, due=~right & ~switch & ~silent & ~reloaded)
        late = ~right & ~landed & ((now_s >= told.due_s) & (spoke_since | silent) | reloaded)
        tries = np.where(right, 0, np.where(reloaded, 1, told.tries + late))
        longer = 2.0 ** np.clip(tries - 1, 0, MAX_DOUBLINGS)
        waiting_s = np.maximum(wait_s, np.minimum(wait_s * longer, self._settings.longest_wait_s))
        due_s = np.where(right, SHOWN, np.where(late, now_s + waiting_s, told.due_s))
        due_s = np.where(landed, now_s + self._clock_wait_s, due_s)
        sent = np.where(right | late | landed, expected[:BRAKE], told.sent)
        deaf = (tries > self._settings.most_tries) | silent
        excess_w = self._excess_w(expected, held, silent)
        after = Told(
            expected=expected,
            sent=sent,
            due_s=due_s,
            tries=tries,
            deaf=deaf,
            silent=silent,
            braked=told.braked,
            open=not right.all(),
            stacked=told.stacked and bool((sent != expected[:BRAKE]).any()),
            reserve_w=float(excess_w[deaf].sum()) if deaf.any() else 0.0,
        )
        return Finding(
            after,
            late_clocks=np.flatnonzero(late & (~self._near(expected, held) | silent | reloaded)),
            late_brake=np.flatnonzero(late & (switch | silent | (reloaded & told.braked))),
            reloaded=np.flatnonzero(reloaded),
            deaf=np.flatnonzero(deaf & ~told.deaf),
            heard=np.flatnonzero(told.deaf & ~deaf & right),
        )

    def _near(self, expected: Floats, held: Floats) -> Bools:
        """Whether the clocks are those that were told, as far as devices can set them."""
        near = np.abs(held[:BRAKE] - expected[:BRAKE]) <= self._settings.clock_tolerance
        both: Bools = np.logical_and(near[TOKEN_CLOCK], near[PROMPT_CLOCK])
        return both

    def _landed(self, told: Told, held: Floats, *, due: Bools) -> Bools:
        """Servers that now hold what was under way when they were told anew."""
        if not told.stacked:
            return np.zeros(len(self._row), dtype=np.bool_)
        told_anew = (told.sent != told.expected[:BRAKE]).any(axis=0) & (told.due_s != SHOWN)
        landed: Bools = due & told_anew & self._near(told.sent, held)
        return landed

    @staticmethod
    def _epochs(expected: Floats, held: Floats, silent: Bools) -> tuple[Floats, Bools]:
        """The loads of the driver as now known, and the servers where it was loaded anew."""
        spoke = ~silent & ~np.isnan(held[EPOCH])
        differs: Bools = np.not_equal(held[EPOCH], expected[EPOCH]) & spoke
        if not differs.any():
            return expected, differs
        reloaded: Bools = differs & ~np.isnan(expected[EPOCH])
        expected = expected.copy()
        expected[EPOCH] = np.where(differs, held[EPOCH], expected[EPOCH])
        return expected, reloaded

    def _excess_w(self, expected: Floats, held: Floats, silent: Bools) -> Floats:
        """What servers may draw above what they were told; one that is silent may run free."""
        found = held.copy()
        found[:BRAKE, silent] = 1.0
        found[BRAKE, silent] = 0.0
        excess: Floats = np.maximum(0.0, self._row.worst_each_w(found) - self._row.worst_each_w(expected))
        return excess

    @staticmethod
    def _due(told: Told, expected: Floats, changed: Bools, due_s: float) -> Told:
        """An older order that has yet to show keeps its time, else a stream of new ones would hide a deaf server."""
        free = told.due_s == SHOWN
        due = np.where(changed & free, due_s, told.due_s)
        sent = np.where(free, expected[:BRAKE], told.sent)
        stacked = told.stacked or bool((changed & ~free).any())
        return told._replace(expected=expected, sent=sent, due_s=due, open=True, stacked=stacked)
