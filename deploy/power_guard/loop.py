"""The guard's control loop: poll all agents, take one step, send the commands, every period.

Agents and meter are polled concurrently with a timeout below half a period.  No database, Prometheus or Ray is
involved.  A failing policy does not stop the guard: the step uses the policy's last setting, as if the budget were not
valid.
"""

from collections.abc import Sequence
from math import inf
from typing import Any, NamedTuple

import numpy as np
import structlog

from deploy.common.clock import Clock
from deploy.node_agent.schemas import ActuationMode
from deploy.power_guard.agent_client import AgentReport, Agents
from deploy.power_guard.config import GuardFile
from deploy.power_guard.metrics import ForecastMetrics, GuardMetrics, Source
from power.arrays import Floats
from power.controls import NodeClocks, Phase, Priority, Setting
from power.guard import BudgetRequest, Commands, Duty, Guard, GuardState, Row, Servers, Telemetry, Timetable, accept
from power.guard.telemetry import BRAKE, EPOCH, PROMPT_CLOCK, TOKEN_CLOCK
from power.policies.interface import Policy
from power.telemetry import Reading, RowObservation

log = structlog.get_logger()


class _LastSetting(NamedTuple):
    """Replaces a policy that failed, and repeats its last setting."""

    setting: Setting
    command_delay_s: float
    name: str = "last-setting"

    def start(self) -> None:
        """Return no state."""

    def decide(self, state: Any, observed: RowObservation) -> tuple[Any, Setting]:  # noqa: ARG002 - the port's
        return state, self.setting

    def calm_below_w(self, state: Any, budget_w: float) -> float:  # noqa: ARG002 - the port's
        """Return a bound below every reading, so that every reading counts."""
        return -inf


class GuardLoop:
    def __init__(
        self,
        *,
        config: GuardFile,
        policy: Policy[Any],
        agents: Agents,
        metrics: GuardMetrics,
        forecast_metrics: ForecastMetrics,
        clock: Clock | None = None,
    ) -> None:
        self.config = config
        self.row = config.servers()
        self._guard = Guard(policy=policy, row=self.row, settings=config.settings)
        self.state: GuardState[Any] = self._guard.start()
        self.budget: Timetable | None = None
        self.reconciled_at_s = -inf
        self._agents = agents
        self.metrics = metrics
        self._forecast_metrics = forecast_metrics
        self._clock = clock or Clock()
        self._reading: Reading | None = None
        self._over_since_s: float | None = None

    async def run(self) -> None:
        """Reconcile every period, until cancelled; late reconciles are not repeated."""
        while True:
            started_s = self._clock.steady_s()
            try:
                await self.reconcile()
            except Exception:
                # The next reconcile may succeed; otherwise agents fall to their safe clocks.
                log.exception("reconcile_failed", row=self.config.row)
            spent_s = self._clock.steady_s() - started_s
            await self._clock.sleep(max(0.0, self.config.settings.period_s - spent_s))

    async def reconcile(self) -> Commands:
        started_s = self._clock.steady_s()
        telemetry = self._telemetry(await self._agents.poll())
        commands = self._step(telemetry)
        try:
            await self._send(commands)
        finally:
            self._report(telemetry, commands)
        self.reconciled_at_s = self._clock.steady_s()
        self.metrics.reconciled(self.reconciled_at_s - started_s)
        return commands

    def set_budget(self, request: BudgetRequest) -> Timetable:
        """Accept a planner's request; raise BudgetError, and then the previous one stays."""
        try:
            self.budget = accept(
                request,
                before=self.budget,
                domain=self.config.row,
                settings=self.config.settings,
                now_s=self._clock.steady_s(),
            )
        except Exception:
            self.metrics.budget_refused()
            raise
        log.info("budget_set", row=self.config.row, limits_w=self.budget.limits_w, valid_s=request.valid_s)
        return self.budget

    def withdraw(self) -> None:
        if self.budget is not None:
            expires_at_s = min(self.budget.expires_at_s, self.now_s())
            self.budget = self.budget._replace(expires_at_s=expires_at_s)

    def now_s(self) -> float:
        """Return the time by the clock of the budget."""
        return self._clock.steady_s()

    def is_alive(self) -> bool:
        """Return whether reconciles end in time."""
        return self.now_s() - self.reconciled_at_s <= 3 * self.config.settings.period_s

    def _telemetry(self, metered: Reading | None) -> Telemetry:
        now_s, settings, reports = self._clock.steady_s(), self.config.settings, self._agents.reports
        if self.config.meter is None:
            share = self.config.max_missing_share
            newest = summed(
                reports, self.row, now_s=now_s, stale_after_s=settings.stale_after_s, max_missing_share=share
            )
        else:
            newest = metered
        if newest is not None and (self._reading is None or newest.at_s > self._reading.at_s):
            self._reading = newest
        return Telemetry(
            now_s=now_s,
            reading=self._reading,
            counts=counts_of(reports, self.row),
            # Where nothing is sent nothing can be verified.
            servers=servers_of(reports) if self.config.mode is ActuationMode.APPLY else None,
            budget=self.budget.at(now_s) if self.budget else None,
            coming_w=self.budget.coming_w(now_s, lead_s=settings.lead_s) if self.budget else inf,
        )

    def _step(self, telemetry: Telemetry) -> Commands:
        try:
            self.state, commands = self._guard.step(self.state, telemetry)
        except Exception:
            log.exception("policy_failed", row=self.config.row, policy=self._guard.policy.name)
            stand_in = _LastSetting(self.state.wanted, self._guard.policy.command_delay_s)
            guard = Guard(policy=stand_in, row=self.row, settings=self.config.settings)
            self.state, commands = guard.step(self.state, telemetry._replace(budget=None))
        return commands

    async def _send(self, commands: Commands) -> None:
        clocks = self.row.clocks_of(commands.setting.clocks)
        await self._agents.send(
            brake=commands.brake.tolist(),
            release=commands.release.tolist(),
            command={at: NodeClocks(*clocks[:, at].tolist()) for at in commands.command.tolist()},
        )

    def _report(self, telemetry: Telemetry, commands: Commands) -> None:
        for event in commands.events:
            names = [self.config.agents[at].name for at in event.servers]
            log.warning(
                "guard_event",
                row=self.config.row,
                event_kind=event.kind,
                state=event.mode,
                cause=event.cause,
                servers=names,
                acting=self.config.mode is ActuationMode.APPLY,
                brakes=self.state.brakes,
            )
        reading = telemetry.reading
        row_w, age_s = (None, 0.0) if reading is None else (reading.row_w, telemetry.now_s - reading.at_s)
        self.metrics.stepped(self.state, commands, row_w=row_w, age_s=age_s)
        self._count_exceeded(telemetry.now_s, over=row_w is not None and row_w > self.state.limit_w)
        self._report_caps(commands)
        self._forecast_metrics.update(
            now_s=telemetry.now_s, reading=reading, budget=telemetry.budget, setting=commands.setting
        )

    def _count_exceeded(self, now_s: float, *, over: bool) -> None:
        if self._over_since_s is not None:
            self.metrics.exceeded(now_s - self._over_since_s)
        self._over_since_s = now_s if over else None

    def _report_caps(self, commands: Commands) -> None:
        planned = self.state.commands.expected.copy()
        planned[:BRAKE] = self.row.clocks_of(self.state.wanted.clocks)
        planned[BRAKE] = 0.0
        applied = self.state.commands.expected.copy()
        applied[:BRAKE] = self.row.clocks_of(commands.setting.clocks)
        enforced = servers_of(self._agents.reports).held
        by_source = {Source.PLANNED: planned, Source.APPLIED: applied, Source.ENFORCED: enforced}
        for source, held in by_source.items():
            watts = self.row.worst_each_w(held)
            for at, agent in enumerate(self.config.agents):
                if not (held[[TOKEN_CLOCK, PROMPT_CLOCK], at] != held[[TOKEN_CLOCK, PROMPT_CLOCK], at]).any():
                    self.metrics.cap(agent.name, source, float(watts[at]))


def servers_of(reports: Sequence[AgentReport | None]) -> Servers:
    """Return the state of each server; minus infinity as the time of one that never reported."""
    held = np.full((4, len(reports)), np.nan)
    read_at_s = np.full(len(reports), -inf)
    for at, one in enumerate(reports):
        if one is None:
            continue
        report, read_at_s[at] = one.report, one.at_s
        held[TOKEN_CLOCK, at], held[PROMPT_CLOCK, at] = report.token_clock, report.prompt_clock
        held[BRAKE, at], held[EPOCH, at] = float(report.braked), float(report.epoch)
    return Servers(read_at_s=read_at_s, held=held)


def counts_of(reports: Sequence[AgentReport | None], row: Row) -> Floats:
    """Count servers by model, priority and phase; one without a report counts as reading a prompt, the worst."""
    counts = np.zeros((len(row.models), len(Priority), len(Phase)))
    for at, one in enumerate(reports):
        duty, kind = Duty(int(row.duty[at])), int(row.kind[at])
        phase = Phase.PROMPT if one is None else one.report.phase.phase
        counts[kind, Priority.HIGH if duty is Duty.HIGH else Priority.LOW, phase] += 1
    return counts


def summed(
    reports: Sequence[AgentReport | None], row: Row, *, now_s: float, stale_after_s: float, max_missing_share: float
) -> Reading | None:
    """Return the row's power as the sum of its agents, as old as the oldest report.

    An agent with a stale report counts with the worst case of its server, so the sum errs upwards only; with too many
    stale ones there is no reading.
    """
    fresh = [one is not None and now_s - one.at_s <= stale_after_s for one in reports]
    missing = len(fresh) - sum(fresh)
    if missing > max_missing_share * len(reports) or missing == len(reports):
        return None
    watts = row.worst_each_w(np.vstack([np.ones((2, len(row))), np.zeros((2, len(row)))]))
    at_s = inf
    for at, one in enumerate(reports):
        if one is not None and fresh[at]:
            watts[at] = one.report.power_w
            at_s = min(at_s, one.at_s)
    return Reading(at_s, float(watts.sum()))
