"""From a request and its candidates to the numbers of a mix problem, and from its solution to the router's weights.

The request's rules on the whole mix become limits and losses of the problem.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from fleet.offers import Market
from planner.options.rule_scopes import Rule, covers, footprint_of, uptime, zone_of
from planner.options.search import Candidate, known_power
from planner.options.variants import plannable
from planner.policy import Failure
from planner.problem import Change, Leg, Limit, LimitKind, Load, Loss, MixProblem, ReplicaOption, Route, Supply
from planner.request import PlanRequest, bucket_names
from planner.solve.solution import MixSolution


@dataclass(frozen=True)
class ProblemParts:
    """Parts of a mix problem under construction; options are in the order of the candidates."""

    candidates: Sequence[Candidate]
    options: tuple[ReplicaOption, ...]
    supplies: tuple[Supply, ...]

    @cached_property
    def behind(self) -> dict[int, Candidate]:
        """Supply -> one of its candidates."""
        return {option.supply: candidate for option, candidate in zip(self.options, self.candidates, strict=True)}

    def gpus_per_unit(self, supply: int) -> float:
        candidate = self.behind[supply]
        return float(candidate.gpus if candidate.offer is None else candidate.supply.slots)

    def covered_supplies(self, rule: Rule) -> list[int]:
        return [
            f
            for f, c in self.behind.items()
            if covers(rule, name=c.supply.name, offer=c.offer, gpu_names=c.folded_gpu_names)
        ]

    def covered_options(self, rule: Rule) -> list[int]:
        supplies = set(self.covered_supplies(rule))
        return [o for o, option in enumerate(self.options) if option.supply in supplies]


def build_problem(request: PlanRequest, candidates: Sequence[Candidate]) -> MixProblem:
    """Options are in the order of the candidates.  All options of an offer share one supply."""
    loads = tuple(
        Load(workload.name, workload.bucket_rates_rps(), workload.min_replicas, request.utilisation or 1.0)
        for workload in request.workloads
    )
    supplies: dict[tuple[bool, str], Supply] = {}
    for candidate in candidates:
        footprint = footprint_of(request, candidate.offer)
        supplies.setdefault(_supply_key(candidate), replace(candidate.supply, footprint=footprint))
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


def limits(request: PlanRequest, parts: ProblemParts) -> Iterator[Limit]:
    for quota in request.quotas:
        gpus = {f: parts.gpus_per_unit(f) for f in parts.covered_supplies(quota)}
        yield Limit(quota.name, LimitKind.QUOTA, quota.gpus, units=gpus)
    for domain in request.power_domains:
        watts = {o: known_power(parts.candidates[o]).limit_w for o in parts.covered_options(domain)}
        yield Limit(domain.name, LimitKind.POWER, domain.limit_w, replicas=watts)
    yield from _spot_share(request.policy.spot.max_share, parts)
    if (budget := request.policy.budget_usd_per_h) is not None:
        prices = {f: supply.price_usd_per_h for f, supply in enumerate(parts.supplies)}
        yield Limit("budget", LimitKind.BUDGET, budget, units=prices)


def losses(request: PlanRequest, parts: ProblemParts) -> Iterator[Loss]:
    """Failures to survive.  A node is an instance, or a replica of a given option."""
    if Failure.NODE in request.policy.survive:
        for o, option in enumerate(parts.options):
            per_node = max(1, parts.supplies[option.supply].slots // option.slots)
            yield Loss(f"a node of {option.name}", {o: per_node})
    if Failure.ZONE in request.policy.survive:
        zones: dict[str, dict[int, int | None]] = {}
        for o, candidate in enumerate(parts.candidates):
            if candidate.offer is not None:
                zones.setdefault(zone_of(candidate.offer), {})[o] = None
        yield from (Loss(f"zone {zone}", lost) for zone, lost in zones.items())


def change(request: PlanRequest) -> Change:
    policy = request.policy.change
    return Change(
        max_started=policy.max_started,
        max_stopped=policy.max_stopped,
        start_usd_per_h=policy.start_usd / policy.lasting_h,
        stop_usd_per_h=policy.stop_usd / policy.lasting_h,
    )


def held(request: PlanRequest) -> dict[tuple[str, str], int]:
    """(workload, option) -> replicas that run now."""
    counts: dict[tuple[str, str], int] = {}
    for running in request.current or ():
        key = running.workload, running.option
        counts[key] = counts.get(key, 0) + running.replicas
    return counts


def _spot_share(share: float, parts: ProblemParts) -> Iterator[Limit]:
    """Spot GPUs are at most this share of all: `Σ_spot (1 - share) - Σ_rest share <= 0`."""
    spot = {f for f, c in parts.behind.items() if c.offer is not None and c.offer.market is Market.SPOT}
    if spot and share < 1:
        weights = {f: ((1 - share) if f in spot else -share) * parts.gpus_per_unit(f) for f in parts.behind}
        yield Limit("spot share", LimitKind.SPOT, 0.0, units=weights)


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


def routing_weights(
    request: PlanRequest, problem: MixProblem, solution: MixSolution
) -> dict[str, dict[str, dict[str, float]]]:
    """A bucket without planned demand has weights too, in proportion to the rates of the replicas in use."""
    return {
        workload.name: {
            name: _weights(problem, solution, load=w, bucket=b) for b, name in enumerate(bucket_names(workload))
        }
        for w, workload in enumerate(request.workloads)
    }


def _weights(problem: MixProblem, solution: MixSolution, *, load: int, bucket: int) -> dict[str, float]:
    routes = [r for r, way in enumerate(problem.routes) if way.load == load and way.runs(solution.replicas)]
    if problem.loads[load].rate_rps[bucket] > 0:
        weights = {r: solution.shares.get((r, bucket), 0.0) for r in routes}
    else:
        carried_rps = {r: _carried_rps(problem.routes[r], solution, bucket) for r in routes}
        total_rps = sum(carried_rps.values()) or 1.0
        weights = {r: rate_rps / total_rps for r, rate_rps in carried_rps.items()}
    return {problem.routes[r].name: weight for r, weight in weights.items() if weight > 0}


def _carried_rps(way: Route, solution: MixSolution, bucket: int) -> float:
    return min(solution.replicas[leg.option] * leg.max_rps[bucket] for leg in way.legs)
