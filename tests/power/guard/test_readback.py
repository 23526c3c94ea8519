"""Commands against read-backs: repetition, backoff, and unresponsive servers."""

from math import inf

import numpy as np

from power.controls import Clocks, Setting
from power.guard import Commands, EventKind, GuardMode, GuardSettings
from power.guard.telemetry import BRAKE, EPOCH
from tests.power.guard.rows import LIMIT_W, FixedPolicy, GuardedRow

CAPPED = Setting(clocks=Clocks(0.8, 0.9, 0.8, 0.9, 0.8))


def kinds(guarded: GuardedRow) -> list[EventKind]:
    return [event.kind for commands in guarded.all for event in commands.events]


def test_an_order_is_repeated_only_after_its_delay_and_a_margin() -> None:
    guarded = GuardedRow(policy=FixedPolicy(CAPPED, command_delay_s=40.0))
    guarded.unresponsive[5] = True
    again_s = None
    while again_s is None:
        commands = guarded.step(0.8 * LIMIT_W)
        if guarded.now_s > 2 and commands.command.size:
            again_s = guarded.now_s
    assert guarded.all[-1].command.tolist() == [5]
    assert 2 + 40 + guarded.settings.margin_s <= again_s <= 2 + 40 + guarded.settings.margin_s + 2


def test_an_unresponsive_server_is_commanded_with_backoff() -> None:
    guarded = GuardedRow(policy=FixedPolicy(CAPPED))
    guarded.unresponsive[5] = True
    for _ in range(900):
        guarded.step(0.8 * LIMIT_W)
    commanded_s = [2.0 * (at + 1) for at, commands in enumerate(guarded.all) if commands.command.size and at]
    gaps_s = np.diff(commanded_s)
    assert (gaps_s[1:] >= gaps_s[:-1]).all()
    assert gaps_s[-1] == guarded.settings.longest_wait_s
    assert all(commands.command.tolist() == [5] for commands in guarded.all[1:] if commands.command.size)


def test_the_possible_excess_of_an_unresponsive_server_reduces_the_policy_budget() -> None:
    guarded = GuardedRow(policy=FixedPolicy(CAPPED))
    guarded.unresponsive[5] = True
    for _ in range(30):
        guarded.step(0.8 * LIMIT_W)
    row = guarded.guard.row
    excess_w = row.worst_each_w(guarded.held)[5] - row.worst_each_w(guarded.state.commands.expected)[5]
    assert excess_w > 0
    assert guarded.state.policy[-1].budget_w == LIMIT_W - excess_w
    assert guarded.mode() is GuardMode.NORMAL
    assert kinds(guarded).count(EventKind.UNRESPONSIVE) == 1


def test_a_large_reserve_degrades_the_row_until_servers_respond() -> None:
    guarded = GuardedRow(policy=FixedPolicy(CAPPED))
    guarded.unresponsive[:29] = True
    for _ in range(30):
        guarded.step(0.8 * LIMIT_W)
    assert guarded.mode() is GuardMode.DEGRADED
    guarded.unresponsive[:] = False
    for _ in range(40):
        guarded.step(0.8 * LIMIT_W)
    assert guarded.mode() is GuardMode.NORMAL
    assert not guarded.state.commands.unresponsive.any()
    assert guarded.state.commands.reserve_w == 0
    assert EventKind.RESPONSIVE in kinds(guarded)


def test_a_reloaded_driver_is_commanded_again_in_the_same_step() -> None:
    guarded = GuardedRow(policy=FixedPolicy(CAPPED)).steady()
    guarded.held[:BRAKE, 7] = 1.0
    guarded.held[EPOCH, 7] += 1
    assert guarded.step(0.8 * LIMIT_W).command.tolist() == [7]
    assert [event.kind for event in guarded.all[-1].events] == [EventKind.DRIVER_RELOADED, EventKind.COMMANDED_AGAIN]
    assert guarded.step(0.8 * LIMIT_W).is_empty


def test_a_driver_reloaded_during_a_brake_is_braked_again() -> None:
    guarded = GuardedRow(policy=FixedPolicy(CAPPED)).steady()
    guarded.step(1.1 * LIMIT_W)
    guarded.held[:, 7] = [1.0, 1.0, 0.0, 2.0]
    commands = guarded.step(0.6 * LIMIT_W)
    assert (commands.command.tolist(), commands.brake.tolist()) == ([7], [7])


def test_a_cap_that_another_process_lifted_is_set_again() -> None:
    guarded = GuardedRow(policy=FixedPolicy(CAPPED)).steady()
    guarded.held[0, 3] = 1.0
    assert guarded.step(0.8 * LIMIT_W).command.tolist() == [3]
    assert guarded.step(0.8 * LIMIT_W).is_empty


def test_clocks_rounded_to_device_steps_count_as_confirmed() -> None:
    guarded = GuardedRow(policy=FixedPolicy(CAPPED)).steady()
    guarded.held[:BRAKE] = np.floor(guarded.held[:BRAKE] * 1410 / 15) * 15 / 1410
    for _ in range(30):
        assert guarded.step(0.8 * LIMIT_W).is_empty
    assert not guarded.state.commands.unresponsive.any()


def test_a_server_without_reports_counts_at_full_clock() -> None:
    guarded = GuardedRow(policy=FixedPolicy(CAPPED), settings=GuardSettings(rating_w=LIMIT_W)).steady()
    last_report_s = guarded.now_s
    for _ in range(10):
        guarded.now_s += 2.0
        guarded.reading = guarded.reading._replace(at_s=guarded.now_s) if guarded.reading else None
        read_at_s = np.full(guarded.servers, guarded.now_s)
        read_at_s[4] = last_report_s
        guarded.read_at_s = read_at_s
        guarded.state, commands = guarded.guard.step(guarded.state, guarded.telemetry())
        guarded.all.append(commands)
    assert guarded.state.commands.silent.nonzero()[0].tolist() == [4]
    assert guarded.state.commands.reserve_w > 0
    assert 0 < sum(commands.command.size for commands in guarded.all[3:]) <= 4


def test_an_old_report_does_not_count_against_a_server() -> None:
    guarded = GuardedRow(policy=FixedPolicy(CAPPED), settings=GuardSettings(rating_w=LIMIT_W, silent_after_s=3600.0))
    guarded.step(0.8 * LIMIT_W)
    guarded.held[:BRAKE] = 1.0  # read before the command
    for _ in range(20):
        guarded.now_s += 2.0
        guarded.reading = guarded.reading._replace(at_s=guarded.now_s) if guarded.reading else None
        guarded.state, commands = guarded.guard.step(guarded.state, guarded.telemetry())
        assert commands.is_empty


class SingleOrderPath(GuardedRow):
    """Servers behind a path that carries one command at a time and sends the newest command next."""

    delay_s = 40.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.in_flight: dict[int, tuple[float, tuple[float, float]]] = {}
        self.pending: dict[int, tuple[float, float]] = {}

    def execute(self, commands: Commands) -> None:
        """Send the commanded value if nothing is in flight."""
        clocks = self.guard.row.clocks_of(commands.setting.clocks)
        for at in commands.command.tolist():
            self.pending[at] = (float(clocks[0, at]), float(clocks[1, at]))
        for at in range(self.servers):
            due_s, sent = self.in_flight.get(at, (inf, (1.0, 1.0)))
            if due_s <= self.now_s:
                self.held[:2, at] = self.held[:2, at] if self.unresponsive[at] else sent
                del self.in_flight[at]
            if at not in self.in_flight and at in self.pending:
                self.in_flight[at] = (self.now_s + self.delay_s, self.pending.pop(at))


def test_frequent_orders_over_a_slow_path_mark_only_the_unresponsive_server() -> None:
    guarded = SingleOrderPath(policy=FixedPolicy(CAPPED, command_delay_s=40.0))
    guarded.unresponsive[5] = True
    for at in range(200):  # a new value every 26 s
        level = 0.6 + 0.01 * (at // 13)
        guarded.guard.policy = FixedPolicy(Setting(clocks=Clocks(*[level] * 5)), command_delay_s=40.0)
        guarded.step(0.8 * LIMIT_W)
    assert np.flatnonzero(guarded.state.commands.unresponsive).tolist() == [5]
    commanded_again = {server for commands in guarded.all for event in commands.events for server in event.servers}
    assert commanded_again == {5}
