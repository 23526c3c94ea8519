"""The pools that a replay runs, from the counts of a mix."""

from collections.abc import Sequence

from planner.options.disaggregation import slower_link_gb_per_s
from planner.options.search import Candidate
from planner.performance.config import KV_BYTES, ReplicaConfig
from planner.performance.costs import step_costs
from planner.performance.open_loop import LINK_REACHED
from planner.performance.steps import StepCosts
from planner.problem import MixProblem, Route
from planner.replay import Pool, ReplayPool, SplitPool
from planner.request import PlanRequest, Workload
from planner.throughput import Provenance

MEASURED = {Provenance.MEASURED, Provenance.MEASURED_AND_CALIBRATED}


def replay_obstacle(
    request: PlanRequest, candidates: Sequence[Candidate], problem: MixProblem, replicas: Sequence[int]
) -> str | None:
    """Why these replicas cannot be replayed; None when they can."""
    for candidate, count in zip(candidates, replicas, strict=True):
        if count and (candidate.shape is None or candidate.model is None):
            return f"{candidate.name} has given rates, so the costs of its engine are unknown"
        if count and candidate.throughput.provenance in MEASURED:
            return f"{candidate.name} has measured rates, which the simulated engine is not calibrated on"
    if any(workload.slo is None for workload in request.workloads):
        return "a workload has no SLO to check"
    running = [route for route in problem.routes if runs(route, replicas)]
    used = [leg.option for route in running for leg in route.legs]
    shared = next((o for o in used if used.count(o) > 1), None)
    if shared is not None:
        return f"{candidates[shared].name} serves several routes at once, which the replay does not model"
    return None


def pools_of(
    request: PlanRequest,
    candidates: Sequence[Candidate],
    problem: MixProblem,
    *,
    load: int,
    replicas: Sequence[int],
) -> list[Pool]:
    """One pool per active route of a workload."""
    routes = (route for route in problem.routes if route.load == load and runs(route, replicas))
    return [_pool(request, candidates, route, replicas) for route in routes]


def runs(route: Route, replicas: Sequence[int]) -> bool:
    return all(replicas[leg.option] > 0 for leg in route.legs)


def _pool(request: PlanRequest, candidates: Sequence[Candidate], route: Route, replicas: Sequence[int]) -> Pool:
    workload = request.workloads[route.load]
    size = _mean_size(workload)
    if len(route.legs) == 1:
        o = route.legs[0].option
        return ReplayPool(route.name, replicas[o], _costs(_config(candidates[o]), size))
    p, d = (leg.option for leg in route.legs)
    prefill, decode = candidates[p], candidates[d]
    link = slower_link_gb_per_s((prefill.data_sheet, prefill.gpus), (decode.data_sheet, decode.gpus))
    sent = _config(prefill, kv_link_gb_per_s=link)
    return SplitPool(
        route.name,
        prefill_replicas=replicas[p],
        prefill=_costs(sent, size),
        decode_replicas=replicas[d],
        decode=_costs(_config(decode), size),
        transfer_token_s=_transfer_token_s(sent),
    )


def _costs(config: ReplicaConfig, size: tuple[int, int]) -> StepCosts:
    return step_costs(config, input_tokens=size[0], output_tokens=size[1])


def _mean_size(workload: Workload) -> tuple[int, int]:
    """The size at which the engine's costs are evaluated."""
    if (trace := workload.sizes.trace) is not None:
        return max(1, round(trace.input_tokens.mean())), max(1, round(trace.output_tokens.mean()))
    buckets = list(workload.buckets.buckets())
    inputs, outputs = (sum(bucket.share * bucket.middle[side] for bucket in buckets) for side in (0, 1))
    return max(1, round(inputs)), max(1, round(outputs))


def _config(candidate: Candidate, *, kv_link_gb_per_s: float | None = None) -> ReplicaConfig:
    if candidate.shape is None or candidate.model is None:
        raise AssertionError(f"{candidate.name} has given rates")
    imbalance = 1.0 if candidate.spread is None else candidate.spread.expert_imbalance
    return candidate.shape.config(
        candidate.model, candidate.data_sheet, expert_imbalance=imbalance, kv_link_gb_per_s=kv_link_gb_per_s
    )


def _transfer_token_s(config: ReplicaConfig) -> float:
    """Transfer time of one prompt token's cache over the slower of the two host links."""
    link_gb_per_s = config.gpu.host_link_gb_per_s if config.kv_link_gb_per_s is None else config.kv_link_gb_per_s
    token_bytes = config.model.kv_bytes_per_token(kv_bytes=KV_BYTES[config.kv_precision])
    return token_bytes / (link_gb_per_s * 1e9 * config.gpus * LINK_REACHED)
