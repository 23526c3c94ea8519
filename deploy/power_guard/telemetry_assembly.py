"""Assembly of the guard's telemetry from the reports of agents and meter."""

from collections.abc import Sequence
from math import inf

import numpy as np

from deploy.power_guard.agent_client import AgentReport
from power.arrays import Floats
from power.controls import Phase, Priority
from power.guard import Duty, Row, Servers
from power.guard.telemetry import BRAKE, EPOCH, PROMPT_CLOCK, TOKEN_CLOCK
from power.telemetry import Reading


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
    """Count servers by model, priority and phase.  A server without a report counts as reading a prompt, the worst
    case."""
    counts = np.zeros((len(row.models), len(Priority), len(Phase)))
    for at, one in enumerate(reports):
        duty, kind = Duty(int(row.duty[at])), int(row.kind[at])
        phase = Phase.PROMPT if one is None else one.report.phase.phase
        counts[kind, Priority.HIGH if duty is Duty.HIGH else Priority.LOW, phase] += 1
    return counts


def summed(
    reports: Sequence[AgentReport | None], row: Row, *, now_s: float, stale_after_s: float, most_missing_share: float
) -> Reading | None:
    """Return the row's power as the sum of its agents, as old as the oldest report.

    An agent with a stale report counts with the worst case of its server, so the sum errs upwards only; with too many
    stale ones there is no reading.
    """
    fresh = [one is not None and now_s - one.at_s <= stale_after_s for one in reports]
    missing = len(fresh) - sum(fresh)
    if missing > most_missing_share * len(reports) or missing == len(reports):
        return None
    watts = row.worst_each_w(np.vstack([np.ones((2, len(row))), np.zeros((2, len(row)))]))
    at_s = inf
    for at, one in enumerate(reports):
        if one is not None and fresh[at]:
            watts[at] = one.report.power_w
            at_s = min(at_s, one.at_s)
    return Reading(at_s, float(watts.sum()))
