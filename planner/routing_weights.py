"""The router's weights of a plan: workload -> bucket -> route -> share of the bucket's requests."""

from planner.problem import MixProblem, Route
from planner.request import PlanRequest, bucket_names
from planner.solve.solution import MixSolution


def routing_weights(
    request: PlanRequest, problem: MixProblem, solution: MixSolution
) -> dict[str, dict[str, dict[str, float]]]:
    """Workload -> bucket -> route -> weight.

    A bucket without planned demand has weights too, in proportion to the rates of the replicas in use.
    """
    return {
        workload.name: {
            name: _weights(problem, solution, load=w, bucket=b) for b, name in enumerate(bucket_names(workload))
        }
        for w, workload in enumerate(request.workloads)
    }


def _weights(problem: MixProblem, solution: MixSolution, *, load: int, bucket: int) -> dict[str, float]:
    routes = [r for r, way in enumerate(problem.routes) if way.load == load and _runs(way, solution)]
    if problem.loads[load].rate_rps[bucket] > 0:
        weights = {r: solution.shares.get((r, bucket), 0.0) for r in routes}
    else:
        carried_rps = {r: _carried_rps(problem.routes[r], solution, bucket) for r in routes}
        total_rps = sum(carried_rps.values()) or 1.0
        weights = {r: rate_rps / total_rps for r, rate_rps in carried_rps.items()}
    return {problem.routes[r].name: weight for r, weight in weights.items() if weight > 0}


def _runs(way: Route, solution: MixSolution) -> bool:
    return all(solution.replicas[leg.option] > 0 for leg in way.legs)


def _carried_rps(way: Route, solution: MixSolution, bucket: int) -> float:
    return min(solution.replicas[leg.option] * leg.max_rps[bucket] for leg in way.legs)
