"""Properties under any sequence of telemetry, budgets and faults."""

from itertools import pairwise
from math import inf

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from power.controls import Clocks, Setting
from power.guard import Cause, Commands, GuardMode, GuardSettings
from power.guard.telemetry import BRAKE, EPOCH
from power.telemetry import Budget, Reading, RowObservation
from tests.power.guard.rows import LIMIT_W, FixedPolicy, GuardedRow, no_faster

SERVERS = 12
ROW_LIMIT_W = LIMIT_W * SERVERS / 58
SETTINGS = GuardSettings(rating_w=ROW_LIMIT_W)
TRANSITIONS = {
    GuardMode.NORMAL: {GuardMode.DEGRADED, GuardMode.TELEMETRY_LOST, GuardMode.BRAKED},
    GuardMode.DEGRADED: {GuardMode.NORMAL, GuardMode.TELEMETRY_LOST, GuardMode.BRAKED},
    GuardMode.TELEMETRY_LOST: {GuardMode.NORMAL, GuardMode.DEGRADED, GuardMode.BRAKED},
    GuardMode.BRAKED: {GuardMode.RELEASING, GuardMode.TELEMETRY_LOST},
    GuardMode.RELEASING: {GuardMode.NORMAL, GuardMode.DEGRADED, GuardMode.TELEMETRY_LOST, GuardMode.BRAKED},
}
# Transitions by read-backs alone: worst-case clocks were read back, or the last unresponsive server recovered.
READ_BACK_TRANSITIONS = {
    (GuardMode.BRAKED, Cause.TELEMETRY_LOST_TOO_LONG, GuardMode.TELEMETRY_LOST),
    (GuardMode.DEGRADED, Cause.ACTUATION_IGNORED, GuardMode.NORMAL),
}
clocks = st.builds(Clocks, *[st.sampled_from([0.3, 0.5, 0.8, 1.0])] * 5)


def same(one: object, other: object) -> bool:
    """Whether two values are equal, their arrays too."""
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
    if isinstance(one, RowObservation) and isinstance(other, RowObservation):
        return same(
            (one.now_s, one.reading, one.counts, one.budget_w),
            (other.now_s, other.reading, other.counts, other.budget_w),
        )
    return one == other


class AnyGuard(RuleBasedStateMachine):
    """A row in which servers may ignore commands, the meter may fail, and the planner may stop."""

    def __init__(self) -> None:
        super().__init__()
        self.guarded = GuardedRow(policy=FixedPolicy(), settings=SETTINGS, servers=SERVERS)
        self.guarded.budget = Budget(ROW_LIMIT_W, 1e9)
        self.before: GuardMode | None = None
        self.commands: Commands | None = None
        self.over_s: float | None = None
        self.commanded: dict[int, list[tuple[float, bool]]] = {}  # times, and whether without effect

    def _step(self, row_w: float | None, after_s: float, *, old_s: float = 0.0) -> None:
        guarded = self.guarded
        self.before = guarded.state.mode
        guarded.now_s += after_s
        if row_w is not None and (guarded.reading is None or guarded.now_s - old_s >= guarded.reading.at_s):
            guarded.reading = Reading(guarded.now_s - old_s, row_w)
            if row_w > guarded.state.limit_w and guarded.reading.at_s > guarded.state.released_s:
                self.over_s = guarded.now_s
        guarded.read_at_s = np.full(SERVERS, guarded.now_s)
        whole, commands = guarded.guard.full_step(guarded.state, guarded.telemetry())
        guarded.state, self.commands = guarded.guard.step(guarded.state, guarded.telemetry())
        assert same(whole, guarded.state)
        assert same(commands, self.commands)
        guarded.execute(self.commands)
        guarded.all.append(self.commands)
        for at in self.commands.command.tolist():
            self.commanded.setdefault(at, []).append((guarded.now_s, bool(guarded.unresponsive[at])))
        self._step_again()

    def _step_again(self) -> None:
        """A second step at the same time sends nothing new to responsive servers and changes no state.

        The exceptions are transitions that waited for the read-back of the first step.
        """
        guarded, state = self.guarded, self.guarded.state
        again, commands = guarded.guard.step(state, guarded.telemetry())
        ignored = bool(guarded.unresponsive.any() or state.commands.unresponsive.any())
        assert self.commands is not None
        if again.mode is state.mode:
            assert ignored or commands.is_empty
        elif again.mode is GuardMode.BRAKED:
            # Lower clocks were tried before the brake: they were not read back, or are not low enough.
            assert guarded.unresponsive.any() or self._floor_w() > state.limit_w
            assert (state.mode, state.since_s, again.cause) == (
                GuardMode.TELEMETRY_LOST,
                guarded.now_s,
                Cause.TELEMETRY_LOST_TOO_LONG,
            )
        else:
            assert self.commands.command.size
            assert (state.mode, state.cause, again.mode) in READ_BACK_TRANSITIONS
        assert again.brakes == state.brakes + (state.mode is not again.mode is GuardMode.BRAKED)

    def _floor_w(self) -> float:
        """Return the power of the row at the lowest worst-case clocks."""
        return self.guarded.guard.row.worst_w(Clocks(*[SETTINGS.lowest_clock] * 5))

    @rule(share=st.floats(0.0, 1.5), after_s=st.floats(0.5, 5.0), old_s=st.sampled_from([0.0, 2.0, 10.0]))
    def read(self, share: float, after_s: float, old_s: float) -> None:
        self._step(share * ROW_LIMIT_W, after_s, old_s=old_s)

    @rule(after_s=st.floats(0.5, 40.0))
    def lose_telemetry(self, after_s: float) -> None:
        self._step(None, after_s)

    @rule(wanted=clocks)
    def change_policy(self, wanted: Clocks) -> None:
        self.guarded.guard.policy = FixedPolicy(Setting(clocks=wanted))

    @rule(valid_s=st.floats(-10.0, 60.0), share=st.floats(0.5, 1.2))
    def plan(self, valid_s: float, share: float) -> None:
        self.guarded.budget = Budget(share * ROW_LIMIT_W, self.guarded.now_s + valid_s)

    @rule(which=st.integers(0, SERVERS - 1), unresponsive=st.booleans())
    def set_unresponsive(self, which: int, *, unresponsive: bool) -> None:
        self.guarded.unresponsive[which] = unresponsive

    @rule(which=st.integers(0, SERVERS - 1))
    def reload(self, which: int) -> None:
        self.guarded.held[:BRAKE, which] = 1.0
        self.guarded.held[EPOCH, which] += 1

    @precondition(lambda self: self.commands is not None)
    @invariant()
    def only_documented_transitions_occur(self) -> None:
        now = self.guarded.state.mode
        assert self.before is not None
        found = self.guarded.state.cause is Cause.FOUND_BRAKED
        # The first step may start in any state.
        assert now is self.before or now in TRANSITIONS[self.before] or found or len(self.guarded.all) == 1

    @precondition(lambda self: self.commands is not None)
    @invariant()
    def never_milder_than_conservative_when_not_normal(self) -> None:
        assert self.commands is not None
        mode, level = self.guarded.state.mode, self.commands.setting.clocks
        if mode is not GuardMode.NORMAL:
            assert no_faster(level, SETTINGS.degraded_clocks)
        if mode in (GuardMode.TELEMETRY_LOST, GuardMode.BRAKED, GuardMode.RELEASING):
            worst_w = self.guarded.guard.row.worst_w(level)
            assert worst_w <= max(self.guarded.state.limit_w, self._floor_w()) + 1e-6
        assert no_faster(level, self.guarded.state.wanted.clocks)

    @precondition(lambda self: self.over_s == self.guarded.now_s)
    @invariant()
    def a_reading_above_the_budget_brakes_in_its_own_step(self) -> None:
        # A planner's rise in the same step may have made it one below the budget.
        reading = self.guarded.reading
        assert reading is not None
        assert self.guarded.state.mode is GuardMode.BRAKED or reading.row_w <= self.guarded.state.limit_w

    @precondition(lambda self: self.commands is not None)
    @invariant()
    def the_brake_is_ordered_for_all_exactly_while_braked(self) -> None:
        commands = self.guarded.state.commands
        assert commands.braked is (self.guarded.state.mode is GuardMode.BRAKED)
        assert (self.guarded.held[BRAKE] == float(commands.braked)).all()

    @precondition(lambda self: self.commands is not None)
    @invariant()
    def orders_to_a_server_are_separated_in_time(self) -> None:
        """Two commands to a server are separated by the wait time.

        The exceptions are a changed value, a reloaded driver, and an earlier command without effect.
        """
        guarded = self.guarded
        assert self.commands is not None
        assert self.commands.command.size <= SERVERS
        assert len(set(self.commands.command.tolist())) == self.commands.command.size
        if len(guarded.all) > 1 and guarded.all[-2].setting.clocks == self.commands.setting.clocks:
            wait_s = guarded.policy.command_delay_s + SETTINGS.margin_s
            for at in self.commands.command.tolist():
                reloaded = any(at in event.servers for event in self.commands.events if event.kind == "driver-reloaded")
                before_s, without_effect = self.commanded[at][-2] if len(self.commanded[at]) > 1 else (-inf, False)
                assert reloaded or without_effect or guarded.now_s - before_s >= wait_s - 1e-9

    @invariant()
    def brakes_are_counted(self) -> None:
        entered = [
            event
            for commands in self.guarded.all
            for event in commands.events
            if event.kind == "mode" and event.mode is GuardMode.BRAKED and event.cause is not Cause.FOUND_BRAKED
        ]
        assert len(entered) == self.guarded.state.brakes


TestAnyGuard = AnyGuard.TestCase
TestAnyGuard.settings = settings(stateful_step_count=40)


def test_the_release_waits_for_the_read_back_of_the_commands() -> None:
    """Servers commanded in the last step are read back at the next step, even at the same time."""
    machine = AnyGuard()
    for after_s in (1.0, 6.0, 1.0, 1.0, 19.0, 40.0, 40.0):
        machine.lose_telemetry(after_s=after_s)
    machine.reload(which=0)
    machine.reload(which=2)
    machine.lose_telemetry(after_s=18.0)
    guarded = machine.guarded
    assert (guarded.state.mode, guarded.state.cause) == (GuardMode.BRAKED, Cause.TELEMETRY_LOST_TOO_LONG)
    machine.reload(which=0)
    machine.lose_telemetry(after_s=15.0)
    assert (guarded.state.mode, guarded.all[-1].command.tolist()) == (GuardMode.BRAKED, [0])
    assert guarded.step(after_s=0.0).release.size == SERVERS
    assert guarded.state.mode is GuardMode.TELEMETRY_LOST
    assert guarded.step(after_s=0.0).is_empty


@given(share=st.floats(0.05, 1.5), worse=st.floats(0.0, 0.5), steps=st.integers(1, 12))
def test_a_row_that_draws_more_never_brakes_later(share: float, worse: float, steps: int) -> None:
    """Of two guards with the same input except for power, the one with more power brakes no later."""
    mild, hard = GuardedRow(settings=SETTINGS, servers=SERVERS), GuardedRow(settings=SETTINGS, servers=SERVERS)
    for guarded in (mild, hard):
        guarded.budget = Budget(ROW_LIMIT_W, 1e9)
    for _ in range(steps):
        mild.step(share * ROW_LIMIT_W)
        hard.step((share + worse) * ROW_LIMIT_W)
        if mild.state.brakes:
            assert hard.state.brakes
        assert hard.state.brakes >= mild.state.brakes


@given(limits=st.lists(st.floats(0.2, 1.3), min_size=2, max_size=8))
def test_a_lower_limit_never_raises_the_worst_case_clocks(limits: list[float]) -> None:
    row = GuardedRow(settings=SETTINGS, servers=SERVERS).guard.row
    levels = [row.level_within(share * ROW_LIMIT_W, lowest=0.3) for share in sorted(limits)]
    assert all(no_faster(tight, loose) for tight, loose in pairwise(levels))
