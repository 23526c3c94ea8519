"""A what-if run: the budget, the uncapped row, the row under its policy, and the impact on requests.

    budget  = highest reading of `budget_servers` uncapped servers with their part of the same work / peak_share
    impact  = quantile of latency under the policy / the same of the same requests uncapped - 1

The budget is that of a row of inference, as POLCA's.  The service of the built-in mix does not batch, as POLCA's; one
with recorded traces batches as much as memory allows.  Only a policy that changes routing may change that, and its
impact is relative to the service before.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite

import numpy as np

from fleet.documents import RuleError
from power.arrays import Floats
from power.controls import Priority
from power.guard import Event as GuardEvent
from power.guard import EventKind
from power.policies.registry import OWN_ROUTER, policy_named
from power.server_model import ServerModel
from power.simulator import Fault, IgnoredActuation, Outcome, PlannerKilled, RowSpec, StaleTelemetry, simulate
from power.simulator.state import WINDOW_S
from power.slo_impact import POLCA_SLO, latency_impact, slo_holds
from power.slo_impact import Impact as Measured
from power.whatif.record import Record, envelope
from power.whatif.request import FaultName, PolicyName, RowRequest
from power.whatif.response import (
    MAX_EVENTS,
    MAX_POINTS,
    AdmissionWaits,
    Assumptions,
    Event,
    Impact,
    Impacts,
    Profile,
    RowResponse,
    Uncapped,
    Waits,
)
from power.workload import Sources, Work
from power.workload.jobs import PROVISIONED_W

MINUTE = round(60 / WINDOW_S)  # readings
STALE_S = 10.0
BUDGET_VALID_S = float(RowSpec.model_fields["budget_valid_s"].default)

MIN_BUDGET_W, MAX_SERVER_W = 1.0, 1e6
NO_LIMIT_W = 1e9  # a budget that no reading reaches
UNBATCHED = 1  # POLCA's row: one request per server


@dataclass(frozen=True, slots=True, eq=False)
class WhatIfRun:
    response: RowResponse
    record: Record


@dataclass(frozen=True, slots=True, eq=False)
class Scenario:
    """A request with its work and budget: the input of the simulation."""

    request: RowRequest
    model: ServerModel
    work: Work
    budget_w: float
    together: int | None  # requests that a server takes, as the service was before any policy
    described: str  # the work, for people

    @property
    def together_under_policy(self) -> int | None:
        """Return None (as many as fit in memory) if the policy changes routing and the request sets nothing."""
        owned = self.request.policy in OWN_ROUTER and self.request.together is None
        return None if owned else self.together

    def allowed(self, together: int | None) -> int:
        return self.model.most_together if together is None else together


def run_whatif(request: RowRequest, *, clock_s: Callable[[], float], sources: Sources | None = None) -> WhatIfRun:
    """Simulate the requested row uncapped and under its policy."""
    began_s = clock_s()
    scenario = scenario_of(request, sources or Sources())
    free = uncapped(scenario)
    faulty = chosen_fault(request, uncapped_w=free.readings_w)
    row_began_s = clock_s()
    row = capped(scenario, faults=() if faulty is None else (faulty[0],))
    ended_s = clock_s()
    response = _response(scenario, free, row, run_s=ended_s - row_began_s, total_s=ended_s - began_s)
    return WhatIfRun(response, _record(scenario, free, row, fault_s=None if faulty is None else faulty[1]))


def scenario_of(request: RowRequest, sources: Sources) -> Scenario:
    model = request.changed(sources.model(request.server))
    together = _together(request, sources)
    budget_w = request.budget_w or provisioned_w(request, sources)
    work = sources.work(
        servers=request.servers,
        days=request.days,
        seed=request.seed,
        training_share=request.training_share,
        model=_filled(model, together),
        provisioned_w=PROVISIONED_W if request.budget_w else budget_w / request.budget_servers,
        load=request.load,
    )
    return Scenario(request, model, work, budget_w, together, _described(request, sources, work))


def provisioned_w(request: RowRequest, sources: Sources) -> float:
    """Return the budget at which `budget_servers` draw `peak_share` of it at their peak."""
    model, together = request.changed(sources.model(request.server)), _together(request, sources)
    work = sources.work(
        servers=request.budget_servers,
        days=request.days,
        seed=request.seed,
        model=_filled(model, together),
        load=request.load,
    )
    free = _free(model, work, seed=request.seed, together=together)
    found_w = free.peak_w / request.peak_share
    max_w = min(NO_LIMIT_W, MAX_SERVER_W * request.budget_servers)
    if not MIN_BUDGET_W <= found_w <= max_w:
        description = f"{request.budget_servers} of these would get {found_w:g} W"
        raise RuleError([(("server",), f"{description}, allowed: {MIN_BUDGET_W:g} to {max_w:g} W")])
    return found_w


def uncapped(scenario: Scenario) -> Outcome:
    return _free(scenario.model, scenario.work, seed=scenario.request.seed, together=scenario.together)


def capped(scenario: Scenario, *, faults: tuple[Fault, ...] = ()) -> Outcome:
    """Simulate the row under its policy and the brake."""
    request = scenario.request
    spec = RowSpec(budget_w=scenario.budget_w, model=scenario.model, together=scenario.together_under_policy)
    kinds = (_filled(scenario.model, scenario.together_under_policy),)
    policy = policy_named(request.policy, kinds=kinds, jobs=scenario.work.jobs)
    return simulate(spec, scenario.work, policy=policy, bare=not request.guarded, faults=faults, seed=request.seed)


def _free(model: ServerModel, work: Work, *, seed: int, together: int | None) -> Outcome:
    spec = RowSpec(budget_w=NO_LIMIT_W, model=model, together=together)
    return simulate(spec, work, policy=policy_named(PolicyName.NONE), bare=True, seed=seed)


def _together(request: RowRequest, sources: Sources) -> int | None:
    """Return the batch of the service before any policy; None: as many as fit in memory."""
    if request.together is not None or sources.traces:
        return request.together
    return UNBATCHED


def _filled(model: ServerModel, together: int | None) -> ServerModel:
    """Return the model that defines the load of the work: a full server is one at its batch limit."""
    return model if together is None else model.model_copy(update={"most_together": together})


def _described(request: RowRequest, sources: Sources, work: Work) -> str:
    description = [one.name for one in sources.traces] or ["built-in mix"]
    if sources.shape is not None:
        description.append("shape of the given rates")
    if request.load is not None:
        description.append(f"load {request.load:g} at the peak")
    if work.jobs:
        description.append(f"{len(work.jobs)} training jobs")
    return ", ".join(description)


def _response(scenario: Scenario, free: Outcome, row: Outcome, *, run_s: float, total_s: float) -> RowResponse:
    request = scenario.request
    measured = {priority: _measured(free, row, priority) for priority in Priority}
    requests = row.requests
    curve = envelope(row.readings_w, step_s=WINDOW_S, max_points=MAX_POINTS)
    return RowResponse(
        servers=request.servers,
        budget_servers=request.budget_servers,
        policy=request.policy,
        days=request.days,
        duration_s=scenario.work.duration_s,
        seed=request.seed,
        training_share=request.training_share,
        fault=request.fault,
        brakes=row.brakes,
        peak_utilization=row.peak_utilization,
        mean_utilization=float(row.readings_w.mean()) / scenario.budget_w,
        seconds_over_budget=row.seconds_over_budget,
        budget_w=scenario.budget_w,
        slo=Impacts(high=_impact(measured[Priority.HIGH]), low=_impact(measured[Priority.LOW])),
        slo_held=slo_holds(measured, POLCA_SLO),
        energy_kwh=row.energy_kwh,
        requests=len(requests),
        unfinished=int(np.count_nonzero(~requests.finished)),
        admission_wait_s=AdmissionWaits(high=_waits(row, Priority.HIGH), low=_waits(row, Priority.LOW)),
        uncapped=Uncapped(
            peak_utilization=free.peak_w / scenario.budget_w,
            mean_utilization=float(free.readings_w.mean()) / scenario.budget_w,
            energy_kwh=free.energy_kwh,
        ),
        events=tuple(_events(row)[:MAX_EVENTS]),
        profile=Profile(step_s=curve.step_s, mean_w=tuple(curve.mean_w.tolist()), max_w=tuple(curve.high_w.tolist())),
        assumptions=_assumptions(scenario),
        run_s=max(0.0, run_s),
        total_s=max(0.0, total_s),
    )


def _measured(free: Outcome, row: Outcome, priority: Priority) -> Measured:
    return latency_impact(
        uncapped_s=free.requests.latency_s, capped_s=row.requests.latency_s, chosen=free.requests.of(priority)
    )


def _impact(found: Measured) -> Impact:
    def shown(value: float) -> float | None:
        return value if found.requests and isfinite(value) else None

    return Impact(p50=shown(found.p50), p99=shown(found.p99), requests=found.requests, unfinished=found.unfinished)


def _waits(row: Outcome, priority: Priority) -> Waits:
    waited = row.requests.admission_wait_s[row.requests.of(priority)]
    waited = waited[waited > 0]  # one that never started is no wait yet: it is unfinished
    if not len(waited):
        return Waits(held=0, mean_s=0.0, p99_s=0.0, longest_s=0.0)
    return Waits(
        held=len(waited),
        mean_s=float(waited.mean()),
        p99_s=float(np.quantile(waited, 0.99)),
        longest_s=float(waited.max()),
    )


def _events(row: Outcome) -> list[Event]:
    found = [(start_s, "brake") for start_s, _ in row.braked_s]
    found += (
        (event.at_s, f"guard {event.mode}" + (f": {event.cause}" if event.cause else ""))
        for event in row.events
        if isinstance(event, GuardEvent) and event.kind is EventKind.MODE
    )
    return [Event(at_s=at_s, what=what, row_w=_reading_w(row, at_s)) for at_s, what in sorted(found)]


def _reading_w(row: Outcome, at_s: float) -> float:
    return float(row.readings_w[min(len(row.readings_w) - 1, max(0, int(at_s / WINDOW_S) - 1))])


def _assumptions(scenario: Scenario) -> Assumptions:
    request, model, spec = scenario.request, scenario.model, RowSpec(budget_w=scenario.budget_w, model=scenario.model)
    policy = policy_named(request.policy, kinds=(model,), jobs=scenario.work.jobs)
    return Assumptions(
        server=model.name,
        work=scenario.described,
        peak_share=request.peak_share if request.budget_w is None else None,
        token_sensitivity=model.token_sensitivity,
        prompt_sensitivity=model.prompt_sensitivity,
        token_exponent=model.token.exponent,
        prompt_exponent=model.prompt.exponent,
        together=scenario.allowed(scenario.together_under_policy),
        uncapped_together=scenario.allowed(scenario.together),
        server_bias=spec.bias,
        command_delay_s=policy.command_delay_s,
        telemetry_delay_s=spec.telemetry_delay_s,
        brake_delay_s=spec.brake_delay_s,
        guarded=request.guarded,
    )


def _record(scenario: Scenario, free: Outcome, row: Outcome, *, fault_s: tuple[float, float] | None) -> Record:
    changed: Floats = np.array([0.0, *(change.at_s for change in row.clocks)])
    return Record(
        step_s=WINDOW_S,
        budget_w=scenario.budget_w,
        row_w=row.readings_w,
        uncapped_w=free.readings_w,
        changed_s=changed,
        clocks=np.array([[1.0] * 5, *(tuple(change.clocks) for change in row.clocks)]),
        brakes_s=np.array([start_s for start_s, _ in row.braked_s]),
        fault_s=fault_s,
    )


def chosen_fault(request: RowRequest, *, uncapped_w: Floats) -> tuple[Fault, tuple[float, float]] | None:
    duration_s = len(uncapped_w) * WINDOW_S
    length_s = duration_s if request.fault_s is None else request.fault_s
    match request.fault:
        case None:
            return None
        case FaultName.PLANNER_KILLED:
            from_s = max(0.0, worst_minute_s(uncapped_w) - BUDGET_VALID_S)  # the last budget expires in that minute
            to_s = min(duration_s, from_s + length_s)
            return PlannerKilled(from_s=from_s, to_s=to_s), (from_s, to_s)
        case FaultName.STALE_TELEMETRY:
            length_s = STALE_S if request.fault_s is None else request.fault_s
            from_s = steepest_s(uncapped_w, over_s=length_s, after_s=worst_minute_s(uncapped_w))
            to_s = min(duration_s, from_s + length_s)
            return StaleTelemetry(from_s=from_s, to_s=to_s), (from_s, to_s)
        case FaultName.IGNORED_ACTUATION:
            to_s = min(duration_s, length_s)
            return IgnoredActuation(from_s=0.0, to_s=to_s, share=request.fault_share), (0.0, to_s)


def worst_minute_s(row_w: Floats) -> float:
    """Return the start of the minute with the highest mean power."""
    size = min(MINUTE, len(row_w))
    sums = np.convolve(row_w, np.ones(size), mode="valid")
    return WINDOW_S * float(np.argmax(sums))


def steepest_s(row_w: Floats, *, over_s: float, after_s: float) -> float:
    """Return the start of the largest rise within a minute."""
    first, steps = round(after_s / WINDOW_S), max(1, round(over_s / WINDOW_S))
    here = row_w[first : first + MINUTE + steps]
    if len(here) <= steps:
        return after_s
    return after_s + WINDOW_S * float(np.argmax(here[steps:] - here[:-steps]))
