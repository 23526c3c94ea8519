"""From a request and its candidates to the numbers of a mix problem."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from planner.options.constraints import ProblemParts, change, held, limits, losses
from planner.options.rule_scopes import carbon_g_per_kwh, uptime
from planner.options.search import Candidate
from planner.options.variants import plannable
from planner.policy import Failure
from planner.problem import Leg, Load, MixProblem, ReplicaOption, Route, Supply
from planner.request import PlanRequest


def build_problem(request: PlanRequest, candidates: Sequence[Candidate]) -> MixProblem:
    """Options are in the order of the candidates.  All options of an offer share one supply."""
    loads = tuple(
        Load(workload.name, workload.bucket_rates_rps(), workload.min_replicas, request.utilisation or 1.0)
        for workload in request.workloads
    )
    supplies: dict[tuple[bool, str], Supply] = {}
    for candidate in candidates:
        carbon = carbon_g_per_kwh(request, candidate.offer)
        supplies.setdefault(_supply_key(candidate), replace(candidate.supply, carbon_g_per_kwh=carbon))
    position_of = {key: position for position, key in enumerate(supplies)}
    running = held(request)
    options = tuple(
        _option(
            request,
            candidate,
            supply=position_of[_supply_key(candidate)],
            running=running.get((request.workloads[candidate.workload].name, candidate.name), 0),
        )
        for candidate in candidates
    )
    parts = ProblemParts(candidates, options, tuple(supplies.values()))
    return MixProblem(
        loads,
        parts.supplies,
        options,
        tuple(_routes(candidates, loads)),
        objective=request.policy.goal,
        limits=tuple(limits(request, parts)),
        change=change(request),
        losses=tuple(losses(request, parts)),
        own_nodes=Failure.NODE in request.policy.survive,
        erring_buckets=request.policy.erring_buckets,
    )


def _option(request: PlanRequest, candidate: Candidate, *, supply: int, running: int) -> ReplicaOption:
    power = candidate.power
    return ReplicaOption(
        name=candidate.name,
        gpu=candidate.gpu_name,
        supply=supply,
        slots=candidate.slots,
        uptime=_uptime(request, candidate),
        idle_w=0.0 if power is None else power.planned_idle_w,
        busy_w=0.0 if power is None else power.planned_busy_w,
        held=running,
    )


def _uptime(request: PlanRequest, candidate: Candidate) -> float:
    """A replica over several instances is available only while all of them are."""
    instances = max(1, candidate.slots // candidate.supply.slots)
    return uptime(request, candidate.offer) ** instances


def _routes(candidates: Sequence[Candidate], loads: Sequence[Load]) -> Iterator[Route]:
    position_of = {(candidate.workload, candidate.name): o for o, candidate in enumerate(candidates)}
    for o, candidate in enumerate(candidates):
        demand_rps = loads[candidate.workload].rate_rps
        whole = Leg(o, plannable(_flat(candidate), demand_rps), candidate.worst_rps)
        if candidate.role == "both":
            yield Route(candidate.name, candidate.workload, (whole,))
        for feed in candidate.decode_targets:
            d = position_of[candidate.workload, feed.decode]
            decode = candidates[d]
            prefilling = Leg(o, feed.rates_rps, feed.worst_rps)
            decoding = Leg(d, plannable(_flat(decode), demand_rps), decode.worst_rps)
            yield Route(f"{candidate.name} + {decode.name}", candidate.workload, (prefilling, decoding))


def _flat(candidate: Candidate) -> tuple[float, ...]:
    return tuple(max_rps for row in candidate.throughput.max_rps for max_rps in row)


def _supply_key(candidate: Candidate) -> tuple[bool, str]:
    """An offer and a given option may have one name and are still different supplies."""
    return candidate.offer is None, candidate.supply.name
