"""The guard's control loop with agents on real sockets: some ignore commands, restart or disappear."""

import asyncio
from typing import Any

from power.controls import NodeClocks, Phase, Setting
from power.guard import BudgetRequest, Cause, GuardMode
from tests.deploy.power_guard.row_of_agents import PERIOD_S, SAFE, AgentRow, Guarding, guarding, staged
from tests.testbed.simulated_servers import ActuatorFaults
from tests.testbed.waiting import wait_for

FULL = NodeClocks(1.0, 1.0)


def request(row: AgentRow, *, per_server_w: float, valid_s: float = 120 * PERIOD_S, **changes: Any) -> BudgetRequest:
    limits = [{"limit_w": per_server_w * len(row.nodes)}]
    return BudgetRequest.model_validate({"domain": "row-a", "limits": limits, "valid_s": valid_s} | changes)


def run(work: Any) -> None:
    asyncio.run(work)


def test_agents_start_at_their_safe_clocks_and_are_raised_by_the_guard() -> None:
    with staged(3) as row:

        async def work() -> None:
            guard = guarding(row.config(), manual_clock=row.manual_clock)
            guard.loop.set_budget(request(row, per_server_w=5000.0))
            assert [node.clocks for node in row.nodes] == [SAFE] * 3
            await guard.reconcile(2)
            assert guard.mode() is GuardMode.NORMAL
            assert [node.clocks for node in row.nodes] == [FULL] * 3
            assert guard.sample("power_cap_actuations_total", path="clocks", result="ok") == 3
            drawn_w = sum(node.device.read().power_w for node in row.nodes)
            assert guard.sample("row_power_watts") == drawn_w
            await guard.agents.aclose()

        run(work())


def test_a_reading_above_the_budget_brakes_every_server_in_the_same_cycle() -> None:
    with staged(8, phase=Phase.PROMPT) as row:

        async def work() -> None:
            guard = guarding(row.config(), manual_clock=row.manual_clock)
            guard.loop.set_budget(request(row, per_server_w=5000.0))
            # Prompts draw 5.7 kW at full clock: the first reconcile after the caps are lifted reads it and brakes.
            reconciles = 0
            while guard.mode() is not GuardMode.BRAKED:
                assert not any(node.braked for node in row.nodes)
                assert reconciles < 5
                reconciles += 1
                await guard.reconcile(1, every_s=0.02)  # delay of a device
            assert all(node.braked for node in row.nodes)
            assert guard.sample("power_brake_events_total", cause=Cause.OVER_BUDGET) == 1
            assert guard.sample("row_power_utilization_ratio") > 1
            await guard.agents.aclose()

        run(work())


def test_mode_observe_sends_no_commands() -> None:
    with staged(3, phase=Phase.PROMPT) as row:

        async def work() -> None:
            guard = guarding(row.config(mode="observe"), manual_clock=row.manual_clock)
            guard.loop.set_budget(request(row, per_server_w=2000.0))
            await guard.reconcile(3)
            assert guard.mode() is GuardMode.BRAKED
            assert guard.sample("power_brake_events_total", cause=Cause.OVER_BUDGET) == 1
            assert not any(node.braked for node in row.nodes)
            assert [node.agent.telemetry().holder for node in row.nodes] == [None] * 3
            assert [node.clocks for node in row.nodes] == [SAFE] * 3
            await guard.agents.aclose()

        run(work())


def test_nodes_fall_to_safe_clocks_without_a_guard_and_a_new_guard_raises_them() -> None:
    with staged(3) as row:

        async def work() -> None:
            guard = guarding(row.config(lease_s=2 * PERIOD_S), manual_clock=row.manual_clock)
            guard.loop.set_budget(request(row, per_server_w=5000.0))
            await guard.reconcile(2, every_s=1.0)
            assert [node.clocks for node in row.nodes] == [FULL] * 3
            row.advance(2 * PERIOD_S - 1.0)  # the lease since the last reconcile

            def clocks() -> list[NodeClocks]:
                row.advance(0.02)
                return [node.clocks for node in row.nodes]

            wait_for(clocks, lambda found: found == [SAFE] * 3, what="nodes at their safe clocks")
            again = guarding(row.config(lease_s=2 * PERIOD_S), manual_clock=row.manual_clock)
            again.loop.set_budget(request(row, per_server_w=5000.0))
            await again.reconcile(2)
            assert [node.clocks for node in row.nodes] == [FULL] * 3
            await guard.agents.aclose()
            await again.agents.aclose()

        run(work())


def test_clocks_are_written_again_immediately_after_a_driver_reload() -> None:
    with staged(3) as row:

        async def work() -> None:
            guard = guarding(
                row.config(settings={"rating_w": 12_000.0, "standing_w": 12_000.0}), manual_clock=row.manual_clock
            )
            await guard.reconcile(3)  # no budget: degraded
            assert guard.mode() is GuardMode.DEGRADED
            capped = row.nodes[1].clocks
            assert capped != FULL
            row.nodes[1].device.actuator.reload_driver(["n1"])
            assert row.nodes[1].clocks == FULL
            await guard.reconcile(1)
            assert row.nodes[1].clocks == capped
            assert guard.sample("guard_events_total", kind="driver-reloaded") == 1
            await guard.agents.aclose()

        run(work())


def test_a_server_that_ignores_commands_is_retried_and_then_unresponsive() -> None:
    with staged(4) as row:
        row.nodes[2].device.actuator.faults = ActuatorFaults(unresponsive=("n2",))

        async def work() -> None:
            guard = guarding(
                row.config(settings={"longest_wait_s": 12.0, "margin_s": 12.0}), manual_clock=row.manual_clock
            )
            reconciles = 0
            while not guard.loop.state.commands.unresponsive[2]:
                assert reconciles < 100
                reconciles += 1
                await guard.reconcile(1)
            assert guard.loop.state.commands.unresponsive.tolist() == [False, False, True, False]
            assert guard.sample("guard_unresponsive_servers") == 1
            assert guard.sample("guard_events_total", kind="commanded-again") >= 3
            await guard.agents.aclose()

        run(work())


def test_a_missing_node_counts_with_its_worst_case_and_two_lose_telemetry() -> None:
    with staged(5) as row:

        async def work() -> None:
            guard = guarding(row.config(max_missing_share=0.2), manual_clock=row.manual_clock)
            guard.loop.set_budget(request(row, per_server_w=5000.0))
            await guard.reconcile(2)
            before_w = guard.sample("row_power_watts")
            await asyncio.to_thread(row.nodes[0].stop)
            while guard.sample("row_power_watts") <= before_w:
                assert guard.mode() is GuardMode.NORMAL
                await guard.reconcile(1)
            await asyncio.to_thread(row.nodes[1].stop)
            await _until(guard, GuardMode.TELEMETRY_LOST)
            await guard.agents.aclose()

        run(work())


def test_a_failed_brake_command_is_repeated_until_it_succeeds() -> None:
    with staged(3, phase=Phase.PROMPT) as row:

        async def work() -> None:
            guard = guarding(row.config(), manual_clock=row.manual_clock)
            guard.loop.set_budget(request(row, per_server_w=5000.0))
            await guard.reconcile(1)
            device = row.nodes[1].device
            real, row.nodes[1].device.brake = device.brake, _broken  # type: ignore[method-assign]
            while guard.mode() is not GuardMode.BRAKED:
                await guard.reconcile(1)
            assert [node.braked for node in row.nodes] == [True, False, True]
            device.brake = real  # type: ignore[method-assign]
            await guard.reconcile(1)
            assert [node.braked for node in row.nodes] == [True, True, True]
            assert guard.sample("power_cap_actuations_total", path="brake", result="failed") >= 1
            await guard.agents.aclose()

        run(work())


def _broken(*, on: bool) -> None:
    raise OSError(f"the connection is cut: {on}")


def test_another_guard_is_rejected_while_one_holds_the_node() -> None:
    with staged(2) as row:

        async def work() -> None:
            first, second = (
                guarding(row.config(guard="first"), manual_clock=row.manual_clock),
                guarding(row.config(guard="second"), manual_clock=row.manual_clock),
            )
            while second.mode() is not GuardMode.TELEMETRY_LOST:  # every agent rejects the second guard
                await first.reconcile(1)
                await second.reconcile(1)
            assert [node.agent.telemetry().holder for node in row.nodes] == ["first"] * 2
            assert first.mode() is GuardMode.DEGRADED
            await first.agents.aclose()
            await second.agents.aclose()

        run(work())


def test_a_failing_policy_degrades_the_guard_until_it_recovers() -> None:
    class Failing:
        name, command_delay_s, broken = "failing", 0.1, False

        def start(self) -> None:
            return None

        def decide(self, state: None, observation: object) -> tuple[None, Setting]:  # noqa: ARG002
            if self.broken:
                raise ZeroDivisionError
            return None, Setting()

        def calm_below_w(self, state: None, budget_w: float) -> float:  # noqa: ARG002
            return 0.0

    with staged(2, phase=Phase.PROMPT) as row:

        async def work() -> None:
            guard = guarding(row.config(settings={"rating_w": 13_000.0}), manual_clock=row.manual_clock)
            policy = Failing()
            guard.loop._guard.policy = policy
            guard.loop.set_budget(request(row, per_server_w=6000.0))
            await guard.reconcile(2)
            assert guard.mode() is GuardMode.NORMAL
            policy.broken = True
            await guard.reconcile(2)
            assert guard.mode() is GuardMode.DEGRADED
            assert row.nodes[0].clocks != FULL
            policy.broken = False
            await guard.reconcile(1)
            assert guard.mode() is GuardMode.NORMAL
            await guard.agents.aclose()

        run(work())


async def _until(guard: Guarding, mode: GuardMode, *, reconciles: int = 100) -> None:
    while guard.mode() is not mode:
        assert reconciles
        reconciles -= 1
        await guard.reconcile(1)


def test_an_expired_budget_degrades_the_row() -> None:
    with staged(2) as row:

        async def work() -> None:
            guard = guarding(row.config(), manual_clock=row.manual_clock)
            guard.loop.set_budget(request(row, per_server_w=5000.0, valid_s=30.0))
            await guard.reconcile(1)
            assert guard.mode() is GuardMode.NORMAL
            await _until(guard, GuardMode.DEGRADED)
            assert guard.loop.state.cause is Cause.BUDGET_EXPIRED
            await guard.agents.aclose()

        run(work())
