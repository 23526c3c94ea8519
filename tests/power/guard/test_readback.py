"""Commands against read-backs: repetition, backoff, and unresponsive servers."""

from math import inf

import numpy as np

from power.controls import Clocks, Setting
from power.guard import EventKind, GuardMode, GuardSettings, Orders
from power.guard.telemetry import BRAKE, EPOCH
from tests.power.guard.rows import LIMIT_W, Led, Wants

CAPPED = Setting(clocks=Clocks(0.8, 0.9, 0.8, 0.9, 0.8))


def kinds(led: Led) -> list[EventKind]:
    return [event.kind for orders in led.all for event in orders.events]


def test_an_order_has_its_delay_and_a_margin_to_show() -> None:
    led = Led(policy=Wants(CAPPED, command_delay_s=40.0))
    led.unresponsive[5] = True
    again_s = None
    while again_s is None:
        orders = led.step(0.8 * LIMIT_W)
        if led.now_s > 2 and orders.command.size:
            again_s = led.now_s
    assert led.all[-1].command.tolist() == [5]
    assert 2 + 40 + led.settings.margin_s <= again_s <= 2 + 40 + led.settings.margin_s + 2


def test_an_unresponsive_server_is_commanded_with_backoff() -> None:
    led = Led(policy=Wants(CAPPED))
    led.unresponsive[5] = True
    for _ in range(900):
        led.step(0.8 * LIMIT_W)
    told_s = [2.0 * (at + 1) for at, orders in enumerate(led.all) if orders.command.size and at]
    gaps_s = np.diff(told_s)
    assert (gaps_s[1:] >= gaps_s[:-1]).all()
    assert gaps_s[-1] == led.settings.longest_wait_s
    assert all(orders.command.tolist() == [5] for orders in led.all[1:] if orders.command.size)


def test_what_it_may_draw_above_its_order_is_kept_back_from_the_policy() -> None:
    led = Led(policy=Wants(CAPPED))
    led.unresponsive[5] = True
    for _ in range(30):
        led.step(0.8 * LIMIT_W)
    row = led.guard.row
    excess_w = row.worst_each_w(led.held)[5] - row.worst_each_w(led.state.commands.expected)[5]
    assert excess_w > 0
    assert led.state.policy[-1].budget_w == LIMIT_W - excess_w
    assert led.mode() is GuardMode.NORMAL
    assert kinds(led).count(EventKind.UNRESPONSIVE) == 1


def test_a_large_reserve_degrades_the_row_until_servers_respond() -> None:
    led = Led(policy=Wants(CAPPED))
    led.unresponsive[:29] = True
    for _ in range(30):
        led.step(0.8 * LIMIT_W)
    assert led.mode() is GuardMode.DEGRADED
    led.unresponsive[:] = False
    for _ in range(40):
        led.step(0.8 * LIMIT_W)
    assert led.mode() is GuardMode.NORMAL
    assert not led.state.commands.unresponsive.any()
    assert led.state.commands.reserve_w == 0
    assert EventKind.RESPONSIVE in kinds(led)


def test_a_reloaded_driver_is_commanded_again_in_the_same_step() -> None:
    led = Led(policy=Wants(CAPPED)).steady()
    led.held[:BRAKE, 7] = 1.0
    led.held[EPOCH, 7] += 1
    assert led.step(0.8 * LIMIT_W).command.tolist() == [7]
    assert [event.kind for event in led.all[-1].events] == [EventKind.DRIVER_RELOADED, EventKind.COMMANDED_AGAIN]
    assert led.step(0.8 * LIMIT_W).quiet


def test_a_reload_under_the_brake_is_braked_again() -> None:
    led = Led(policy=Wants(CAPPED)).steady()
    led.step(1.1 * LIMIT_W)
    led.held[:, 7] = [1.0, 1.0, 0.0, 2.0]
    orders = led.step(0.6 * LIMIT_W)
    assert (orders.command.tolist(), orders.brake.tolist()) == ([7], [7])


def test_a_cap_that_somebody_else_lifted_is_set_again() -> None:
    led = Led(policy=Wants(CAPPED)).steady()
    led.held[0, 3] = 1.0
    assert led.step(0.8 * LIMIT_W).command.tolist() == [3]
    assert led.step(0.8 * LIMIT_W).quiet


def test_a_device_that_rounds_to_its_steps_counts_as_right() -> None:
    led = Led(policy=Wants(CAPPED)).steady()
    led.held[:BRAKE] = np.floor(led.held[:BRAKE] * 1410 / 15) * 15 / 1410
    for _ in range(30):
        assert led.step(0.8 * LIMIT_W).quiet
    assert not led.state.commands.unresponsive.any()


def test_a_server_without_reports_counts_at_full_clock() -> None:
    led = Led(policy=Wants(CAPPED), settings=GuardSettings(rating_w=LIMIT_W)).steady()
    spoke_s = led.now_s
    for _ in range(10):
        led.now_s += 2.0
        led.reading = led.reading._replace(at_s=led.now_s) if led.reading else None
        read_at_s = np.full(led.servers, led.now_s)
        read_at_s[4] = spoke_s
        led.read_at_s = read_at_s
        led.state, orders = led.guard.step(led.state, led.telemetry())
        led.all.append(orders)
    assert led.state.commands.silent.nonzero()[0].tolist() == [4]
    assert led.state.commands.reserve_w > 0
    assert 0 < sum(orders.command.size for orders in led.all[3:]) <= 4


def test_an_old_report_does_not_count_against_a_server() -> None:
    led = Led(policy=Wants(CAPPED), settings=GuardSettings(rating_w=LIMIT_W, silent_after_s=3600.0))
    led.step(0.8 * LIMIT_W)
    led.held[:BRAKE] = 1.0  # read before the order
    for _ in range(20):
        led.now_s += 2.0
        led.reading = led.reading._replace(at_s=led.now_s) if led.reading else None
        led.state, orders = led.guard.step(led.state, led.telemetry())
        assert orders.quiet


class OneUnderWay(Led):
    """Servers that take a newer order when the older one has landed, as a path of one order at a time does."""

    delay_s = 40.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.under_way: dict[int, tuple[float, tuple[float, float]]] = {}
        self.next_wish: dict[int, tuple[float, float]] = {}

    def obey(self, orders: Orders) -> None:
        """Send the commanded value if nothing is in flight."""
        clocks = self.guard.row.clocks_of(orders.setting.clocks)
        for at in orders.command.tolist():
            self.next_wish[at] = (float(clocks[0, at]), float(clocks[1, at]))
        for at in range(self.servers):
            due_s, sent = self.under_way.get(at, (inf, (1.0, 1.0)))
            if due_s <= self.now_s:
                self.held[:2, at] = self.held[:2, at] if self.unresponsive[at] else sent
                del self.under_way[at]
            if at not in self.under_way and at in self.next_wish:
                self.under_way[at] = (self.now_s + self.delay_s, self.next_wish.pop(at))


def test_frequent_orders_over_a_slow_path_neither_mark_nor_hide_an_unresponsive_server() -> None:
    led = OneUnderWay(policy=Wants(CAPPED, command_delay_s=40.0))
    led.unresponsive[5] = True
    for at in range(200):  # a new value every 26 s
        level = 0.6 + 0.01 * (at // 13)
        led.guard.policy = Wants(Setting(clocks=Clocks(*[level] * 5)), command_delay_s=40.0)
        led.step(0.8 * LIMIT_W)
    assert np.flatnonzero(led.state.commands.unresponsive).tolist() == [5]
    told_again = {server for orders in led.all for event in orders.events for server in event.servers}
    assert told_again == {5}
