"""Read-backs against commands, all servers at once as arrays.

    right          enforced = commanded, within the tolerance
    reloaded       the driver's load count differs: the server lost every cap
    late           not right, and the command is older than its delay and a margin by a newer report of the server;
                   or right before and not now; or without a report for long
    unresponsive   late more than `max_tries` times in a row, or without a report
    landed         not right, but the previous command now holds: the newer command has its full time from here

A command in flight is not overtaken: over a path of 40 s the newest value follows when the older one has landed, and
frequent changes do not make a server unresponsive.  The guard repeats commands to late servers, with backoff to
unresponsive ones: at most one command per server and waiting time.
"""

from typing import NamedTuple

import numpy as np

from power.arrays import Bools, Floats, Ints
from power.guard.row import Row
from power.guard.settings import GuardSettings
from power.guard.states import CommandState, Event, EventKind, GuardMode
from power.guard.telemetry import BRAKE, EPOCH, NO_SERVERS, PROMPT_CLOCK, TOKEN_CLOCK, Servers

SHOWN = -np.inf  # a `due_s` whose command was read back
MAX_DOUBLINGS = 10


class Finding(NamedTuple):
    commands: CommandState
    late_clocks: Ints  # repeat their clocks
    late_brake: Ints  # repeat their brake or release
    reloaded: Ints
    unresponsive: Ints  # since now
    responsive: Ints  # since now

    @property
    def is_empty(self) -> bool:
        """Return whether there is nothing to command and nothing to report."""
        return not any(which.size for which in self[1:])


def events_of(finding: Finding, *, mode: GuardMode, now_s: float) -> tuple[Event, ...]:
    if finding.is_empty:
        return ()
    commands = (
        (EventKind.DRIVER_RELOADED, finding.reloaded),
        (EventKind.COMMANDED_AGAIN, np.union1d(finding.late_clocks, finding.late_brake)),
        (EventKind.UNRESPONSIVE, finding.unresponsive),
        (EventKind.RESPONSIVE, finding.responsive),
    )
    return tuple(Event(kind, now_s, mode, servers=tuple(which.tolist())) for kind, which in commands if which.size)


def _unchanged(commands: CommandState) -> Finding:
    return Finding(commands, NO_SERVERS, NO_SERVERS, NO_SERVERS, NO_SERVERS, NO_SERVERS)


def no_commands(servers: int) -> CommandState:
    """Return the state before the first command."""
    return CommandState(
        expected=np.vstack([np.full((2, servers), np.nan), np.zeros(servers), np.full(servers, np.nan)]),
        sent=np.full((2, servers), np.nan),
        due_s=np.full(servers, SHOWN),
        tries=np.zeros(servers, dtype=np.int64),
        unresponsive=np.zeros(servers, dtype=np.bool_),
        silent=np.zeros(servers, dtype=np.bool_),
        braked=False,
        open=True,
        stacked=False,
        reserve_w=0.0,
    )


class Readback:
    """Evaluates read-backs for one row."""

    def __init__(self, *, row: Row, settings: GuardSettings, command_delay_s: float) -> None:
        self._row = row
        self._settings = settings
        self._clock_wait_s = command_delay_s + settings.margin_s
        self._brake_wait_s = settings.brake_s + settings.margin_s
        self._shown, self._none = np.full(len(row), SHOWN), np.zeros(len(row), dtype=np.int64)
        self._no_servers = np.zeros(len(row), dtype=np.bool_)

    def command_clocks(self, commands: CommandState, clocks: Floats, *, now_s: float) -> tuple[CommandState, Ints]:
        """Return the commands after a change of setting, and the servers that the change concerns."""
        changed = (commands.expected[:BRAKE] != clocks).any(axis=0)
        expected = commands.expected.copy()
        expected[:BRAKE] = clocks
        return self._due(commands, expected, changed, now_s + self._clock_wait_s), np.flatnonzero(changed)

    def command_brake(self, commands: CommandState, *, on: bool, now_s: float) -> CommandState:
        """Return the commands after the brake is engaged or released."""
        expected = commands.expected.copy()
        expected[BRAKE] = float(on)
        all_servers = np.ones(len(self._row), dtype=np.bool_)
        # A brake command starts its own time, whatever was due before.
        shown = commands._replace(due_s=np.full(len(self._row), SHOWN), braked=on)
        return self._due(shown, expected, all_servers, now_s + self._brake_wait_s)

    def check(self, commands: CommandState, servers: Servers, *, now_s: float) -> Finding | None:
        """Compare the read-backs with the commands; None if nothing changed."""
        silent_before_s = now_s - self._settings.silent_after_s
        if servers.read_at_s.min() >= silent_before_s:
            same = servers.held == commands.expected
            if same.all() and not commands.unresponsive.any():
                return self._all_confirmed(commands) if commands.open else None
            if (
                same[BRAKE:].all()
                and not commands.stacked
                and not commands.tries.any()
                and not commands.unresponsive.any()
            ):
                after = self._waiting(commands, servers.held, now_s=now_s)
                if after is not None:
                    return None if after is commands else _unchanged(after)
        return self._evaluated(commands, servers, now_s=now_s, silent=servers.read_at_s < silent_before_s)

    def _all_confirmed(self, commands: CommandState) -> Finding:
        """Return the finding that all servers hold their last command and none was unresponsive."""
        after = commands._replace(sent=commands.expected[:BRAKE], due_s=self._shown, tries=self._none, open=False)
        return _unchanged(after._replace(stacked=False, silent=self._no_servers, reserve_w=0.0))

    def _waiting(self, commands: CommandState, held: Floats, *, now_s: float) -> CommandState | None:
        """Close the confirmed commands if all servers report and none failed; else return None."""
        right = self._near(commands.expected, held)
        due_s = np.where(right, SHOWN, commands.due_s)
        left = due_s != SHOWN
        if (left | right).all() and (due_s[left] > now_s).all():
            unchanged = (due_s == commands.due_s).all() and commands.open is bool(left.any())
            return commands if unchanged else commands._replace(due_s=due_s, open=bool(left.any()))
        return None

    def _evaluated(self, commands: CommandState, servers: Servers, *, now_s: float, silent: Bools) -> Finding:
        held = servers.held
        expected, reloaded = self._epochs(commands.expected, held, silent)
        right = self._near(expected, held) & (held[BRAKE] == expected[BRAKE]) & ~silent
        switch = held[BRAKE] != expected[BRAKE]
        wait_s = np.where(switch, self._brake_wait_s, self._clock_wait_s)
        # Only a report newer than the moment at which the command should have shown counts against the server.
        reported_since = servers.read_at_s >= commands.due_s - self._settings.margin_s
        landed = self._landed(commands, held, due=~right & ~switch & ~silent & ~reloaded)
        late = ~right & ~landed & ((now_s >= commands.due_s) & (reported_since | silent) | reloaded)
        tries = np.where(right, 0, np.where(reloaded, 1, commands.tries + late))
        longer = 2.0 ** np.clip(tries - 1, 0, MAX_DOUBLINGS)
        waiting_s = np.maximum(wait_s, np.minimum(wait_s * longer, self._settings.longest_wait_s))
        due_s = np.where(right, SHOWN, np.where(late, now_s + waiting_s, commands.due_s))
        due_s = np.where(landed, now_s + self._clock_wait_s, due_s)
        sent = np.where(right | late | landed, expected[:BRAKE], commands.sent)
        unresponsive = (tries > self._settings.max_tries) | silent
        excess_w = self._excess_w(expected, held, silent)
        after = CommandState(
            expected=expected,
            sent=sent,
            due_s=due_s,
            tries=tries,
            unresponsive=unresponsive,
            silent=silent,
            braked=commands.braked,
            open=not right.all(),
            stacked=commands.stacked and bool((sent != expected[:BRAKE]).any()),
            reserve_w=float(excess_w[unresponsive].sum()) if unresponsive.any() else 0.0,
        )
        return Finding(
            after,
            late_clocks=np.flatnonzero(late & (~self._near(expected, held) | silent | reloaded)),
            late_brake=np.flatnonzero(late & (switch | silent | (reloaded & commands.braked))),
            reloaded=np.flatnonzero(reloaded),
            unresponsive=np.flatnonzero(unresponsive & ~commands.unresponsive),
            responsive=np.flatnonzero(commands.unresponsive & ~unresponsive & right),
        )

    def _near(self, expected: Floats, held: Floats) -> Bools:
        """Return whether the clocks are the commanded ones, within the steps of devices."""
        near = np.abs(held[:BRAKE] - expected[:BRAKE]) <= self._settings.clock_tolerance
        both: Bools = np.logical_and(near[TOKEN_CLOCK], near[PROMPT_CLOCK])
        return both

    def _landed(self, commands: CommandState, held: Floats, *, due: Bools) -> Bools:
        """Return the servers that now hold the command in flight before the newest one."""
        if not commands.stacked:
            return np.zeros(len(self._row), dtype=np.bool_)
        superseded = (commands.sent != commands.expected[:BRAKE]).any(axis=0) & (commands.due_s != SHOWN)
        landed: Bools = due & superseded & self._near(commands.sent, held)
        return landed

    @staticmethod
    def _epochs(expected: Floats, held: Floats, silent: Bools) -> tuple[Floats, Bools]:
        """Return the known driver loads, and the servers whose driver was reloaded."""
        reported = ~silent & ~np.isnan(held[EPOCH])
        differs: Bools = np.not_equal(held[EPOCH], expected[EPOCH]) & reported
        if not differs.any():
            return expected, differs
        reloaded: Bools = differs & ~np.isnan(expected[EPOCH])
        expected = expected.copy()
        expected[EPOCH] = np.where(differs, held[EPOCH], expected[EPOCH])
        return expected, reloaded

    def _excess_w(self, expected: Floats, held: Floats, silent: Bools) -> Floats:
        """Return the power that servers may draw above their commands; one without a report counts at full clock."""
        found = held.copy()
        found[:BRAKE, silent] = 1.0
        found[BRAKE, silent] = 0.0
        excess: Floats = np.maximum(0.0, self._row.worst_each_w(found) - self._row.worst_each_w(expected))
        return excess

    @staticmethod
    def _due(commands: CommandState, expected: Floats, changed: Bools, due_s: float) -> CommandState:
        """A command in flight keeps its deadline, else frequent commands would hide an unresponsive server."""
        free = commands.due_s == SHOWN
        due = np.where(changed & free, due_s, commands.due_s)
        sent = np.where(free, expected[:BRAKE], commands.sent)
        stacked = commands.stacked or bool((changed & ~free).any())
        return commands._replace(expected=expected, sent=sent, due_s=due, open=True, stacked=stacked)
