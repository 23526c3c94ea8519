"""From a request and its candidates to the plain numbers of a mix problem."""

from collections.abc import Sequence

from planner.problem import Leg, Load, MixProblem, ReplicaOption, Route, Supply
from planner.request import MAX_REPLICAS_PER_BUCKET, PlanRequest
from planner.search import Candidate


def mix_problem(request: PlanRequest, candidates: Sequence[Candidate]) -> MixProblem:
    """Options stand in the order of the candidates.  All options of an offer draw on one supply."""
    loads = tuple(
        Load(workload.name, workload.bucket_rates_rps(), workload.min_replicas, request.utilisation)
        for workload in request.workloads
    )
    supplies: dict[tuple[bool, str], Supply] = {}
    for candidate in candidates:
        supplies.setdefault(_supply_key(candidate), candidate.supply)
    position_of = {key: position for position, key in enumerate(supplies)}
    options = tuple(
        ReplicaOption(
            name=candidate.name,
            gpu=candidate.gpu.name,
            supply=position_of[_supply_key(candidate)],
            slots=candidate.slots,
            busy_w=candidate.power_w,
        )
        for candidate in candidates
    )
    routes = tuple(
        Route(candidate.name, candidate.workload, (Leg(o, _max_rps(candidate, loads[candidate.workload])),))
        for o, candidate in enumerate(candidates)
    )
    return MixProblem(loads, tuple(supplies.values()), options, routes)


def _supply_key(candidate: Candidate) -> tuple[bool, str]:
    """An offer and a given option may go by the same name, and are still not the same thing."""
    return candidate.offer is None, candidate.supply.name


def _max_rps(candidate: Candidate, load: Load) -> tuple[float, ...]:
    """Row by row; an option that would need absurdly many replicas for a bucket does not count as serving it."""
    flat = (max_rps for row in candidate.throughput.max_rps for max_rps in row)
    return tuple(
        max_rps if max_rps > rate_rps / MAX_REPLICAS_PER_BUCKET else 0.0
        for max_rps, rate_rps in zip(flat, load.rate_rps, strict=True)
    )
