"""Replays of one plan: its pools, the run as planned, after each failure, and with one replica less; the results."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import floor
from typing import Literal

from pydantic import Field

from fleet.documents import Frozen
from fleet.slo import Slo
from fleet.solvers import SolverError
from planner.explain.what_if import OutOfTimeError
from planner.options.disaggregation import slower_link_gb_per_s
from planner.options.search import Candidate
from planner.performance.config import KV_BYTES, ReplicaConfig
from planner.performance.open_loop import LINK_REACHED
from planner.performance.steps import step_costs
from planner.problem import MixProblem, Route
from planner.problem_builder import routing_weights
from planner.replay import Pool, ReplayPool, ReplayResult, SplitPool, Stage, Stream, check_slo, replay
from planner.replay.slo_check import LimitCheck, Removal, SloCheck, Tightness
from planner.request import PlanRequest, Workload
from planner.solve.fixed_counts import route
from planner.solve.solution import MixSolution
from planner.throughput import ThroughputSource

MEASURED = {ThroughputSource.MEASURED, ThroughputSource.MEASURED_AND_CALIBRATED}
ANY_LOAD = 1e3  # a utilisation that allows any routing: the replay decides whether it holds

Counts = tuple[int, ...]


class LossValidation(Frozen):
    """A failure that the plan must survive, and the replay of the remaining replicas."""

    name: str
    verified: bool
    broken: tuple[LimitCheck, ...] = Field(description="Limits that break; none where the rest cannot be routed.")


class WorkloadValidation(Frozen):
    """The result of one workload's replay."""

    workload: str
    traffic: Literal["trace", "drawn"]
    requests: int = Field(ge=0)
    hours: float
    utilisation: float = Field(description="Share of the rates in `throughput` that the plan uses.")
    slo_check: SloCheck
    losses: tuple[LossValidation, ...] = ()
    tightness: Tightness | None = Field(
        description="Whether every replica is needed; absent where a limit is broken, or where the time ended before."
    )

    @property
    def verified(self) -> bool:
        return self.slo_check.verified and all(loss.verified for loss in self.losses)


@dataclass(frozen=True)
class Scenarios:
    """Replays of one plan, each run once.  OutOfTimeError: there is no time to begin another one."""

    request: PlanRequest
    candidates: Sequence[Candidate]
    problem: MixProblem
    solution: MixSolution
    streams: Mapping[str, Stream]
    seed: int
    has_time: Callable[[], bool] = lambda: True
    results: dict[tuple[str, Counts], ReplayResult | None] = field(default_factory=dict)

    def check(self, workload: Workload) -> SloCheck:
        result = self._result(workload, self._present_replicas(self.solution.replicas))
        if result is None:
            raise SolverError(f"{workload.name}: the plan's own counts admit no routing")
        return check_slo(result, _slo(workload))

    def losses(self, workload: Workload) -> tuple[LossValidation, ...]:
        return tuple(
            LossValidation(
                name=name, verified=found is not None and found.verified, broken=found.broken if found else ()
            )
            for name, found in self._after_losses(workload, self.solution.replicas)
        )

    def holds(self, workload: Workload) -> bool:
        return self.check(workload).verified and self._survives(workload, self.solution.replicas)

    def hold_with(self, replicas: Counts, workloads: Sequence[Workload]) -> bool:
        for workload in workloads:
            found = self._checked(workload, replicas)
            if found is None or not found.verified or not self._survives(workload, replicas):
                return False
        return True

    def tightness(self, workload: Workload) -> Tightness:
        return Tightness.of([self._removal(workload, option) for option in self._used(workload)])

    def _removal(self, workload: Workload, option: int) -> Removal:
        replicas = self.solution.replicas
        fewer = (*replicas[:option], replicas[option] - 1, *replicas[option + 1 :])
        found = self._checked(workload, fewer)
        verified = found is not None and found.verified and self._survives(workload, fewer)
        return Removal(
            option=self.problem.options[option].name,
            stage=Stage(self.candidates[option].role),
            verified=verified,
            broken=() if found is None else found.broken,
        )

    def _survives(self, workload: Workload, replicas: Counts) -> bool:
        return all(found is not None and found.verified for _, found in self._after_losses(workload, replicas))

    def _after_losses(self, workload: Workload, replicas: Counts) -> Iterator[tuple[str, SloCheck | None]]:
        used = self._used(workload)
        for loss in self.problem.losses:
            left = loss.survivors(replicas)
            if any(left[o] != replicas[o] for o in used):
                yield loss.name, self._checked(workload, left)

    def _checked(self, workload: Workload, replicas: Counts) -> SloCheck | None:
        result = self._result(workload, self._present_replicas(replicas))
        return None if result is None else check_slo(result, _slo(workload))

    def _result(self, workload: Workload, replicas: Counts) -> ReplayResult | None:
        key = workload.name, replicas
        if key not in self.results:
            if not self.has_time():
                raise OutOfTimeError
            self.results[key] = self._replayed(workload, replicas)
        return self.results[key]

    def _replayed(self, workload: Workload, replicas: Counts) -> ReplayResult | None:
        """None where the remaining replicas cannot serve every size."""
        weights = self._weights(workload, replicas)
        if weights is None:
            return None
        load = self.request.workloads.index(workload)
        pools = pools_of(self.request, self.candidates, self.problem, load=load, replicas=replicas)
        known = self.results.get((workload.name, self._present_replicas(self.solution.replicas)))
        stream = self.streams[workload.name]
        return replay(stream, pools, weights, workload.buckets, seed=self.seed, known=known)

    def _weights(self, workload: Workload, replicas: Counts) -> Mapping[str, Mapping[str, float]] | None:
        if replicas == self.solution.replicas:
            return routing_weights(self.request, self.problem, self.solution)[workload.name]
        loads = tuple(replace(load, utilisation=ANY_LOAD) for load in self.problem.loads)
        try:
            shares = route(replace(self.problem, loads=loads), replicas=replicas)
        except SolverError:
            return None
        spread = replace(self.solution, replicas=replicas, shares=shares)
        return routing_weights(self.request, self.problem, spread)[workload.name]

    def _present_replicas(self, replicas: Counts) -> Counts:
        """The average number of replicas that are present, where a provider may reclaim them."""
        return tuple(
            max(1, floor(n * option.uptime + 1e-9)) if n else 0
            for n, option in zip(replicas, self.problem.options, strict=True)
        )

    def _used(self, workload: Workload) -> list[int]:
        load = self.request.workloads.index(workload)
        routes = (way for way in self.problem.routes if way.load == load and way.runs(self.solution.replicas))
        return sorted({leg.option for way in routes for leg in way.legs})


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
    running = [route for route in problem.routes if route.runs(replicas)]
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
    routes = (route for route in problem.routes if route.load == load and route.runs(replicas))
    return [_pool(request, candidates, route, replicas) for route in routes]


def _pool(request: PlanRequest, candidates: Sequence[Candidate], route: Route, replicas: Sequence[int]) -> Pool:
    workload = request.workloads[route.load]
    inputs, outputs = _mean_size(workload)
    costs = partial(step_costs, input_tokens=inputs, output_tokens=outputs)
    if len(route.legs) == 1:
        o = route.legs[0].option
        return ReplayPool(route.name, replicas[o], costs(_config(candidates[o])))
    p, d = (leg.option for leg in route.legs)
    prefill, decode = candidates[p], candidates[d]
    link = slower_link_gb_per_s((prefill.data_sheet, prefill.gpus), (decode.data_sheet, decode.gpus))
    sent = _config(prefill, kv_link_gb_per_s=link)
    return SplitPool(
        route.name,
        prefill_replicas=replicas[p],
        prefill=costs(sent),
        decode_replicas=replicas[d],
        decode=costs(_config(decode)),
        transfer_token_s=_transfer_token_s(sent),
    )


def _mean_size(workload: Workload) -> tuple[int, int]:
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


def _slo(workload: Workload) -> Slo:
    if workload.slo is None:
        raise AssertionError(f"{workload.name} has no objective")
    return workload.slo
