"""Replays of one plan: as planned, after each failure, and with one replica less."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import floor

from fleet.slo import Slo
from fleet.solvers import SolverError
from planner.options.search import Candidate
from planner.problem import MixProblem
from planner.replay import ReplayResult, SloCheck, Stage, Stream, Tightness, check_slo, replay
from planner.replay.slo_check import Removal
from planner.request import PlanRequest, Workload
from planner.routing_weights import routing_weights
from planner.solve.routing import route
from planner.solve.solution import MixSolution
from planner.validation.model import LossValidation
from planner.validation.pools import pools_of, runs

ANY_LOAD = 1e3  # a utilisation that allows any routing: the replay decides whether it holds

Counts = tuple[int, ...]


@dataclass(frozen=True)
class Scenarios:
    """Replays of one plan, each run once."""

    request: PlanRequest
    candidates: Sequence[Candidate]
    problem: MixProblem
    solution: MixSolution
    streams: Mapping[str, Stream]
    seed: int
    results: dict[tuple[str, Counts], ReplayResult | None] = field(default_factory=dict)

    def check(self, workload: Workload) -> SloCheck:
        result = self._result(workload, self._there(self.solution.replicas))
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
        return Tightness.of([removal for o in self._used(workload) for removal in self._removals(workload, o)])

    def _removals(self, workload: Workload, option: int) -> Iterator[Removal]:
        replicas = self.solution.replicas
        fewer = (*replicas[:option], replicas[option] - 1, *replicas[option + 1 :])
        found = self._checked(workload, fewer)
        verified = found is not None and found.verified and self._survives(workload, fewer)
        yield Removal(
            option=self.problem.options[option].name,
            stage=self._stage(option),
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
        result = self._result(workload, self._there(replicas))
        return None if result is None else check_slo(result, _slo(workload))

    def _result(self, workload: Workload, replicas: Counts) -> ReplayResult | None:
        key = workload.name, replicas
        if key not in self.results:
            self.results[key] = self._replayed(workload, replicas)
        return self.results[key]

    def _replayed(self, workload: Workload, replicas: Counts) -> ReplayResult | None:
        """None where the remaining replicas cannot serve every size."""
        weights = self._weights(workload, replicas)
        if weights is None:
            return None
        load = self.request.workloads.index(workload)
        pools = pools_of(self.request, self.candidates, self.problem, load=load, replicas=replicas)
        known = self.results.get((workload.name, self._there(self.solution.replicas)))
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

    def _there(self, replicas: Counts) -> Counts:
        """The average number of replicas that are present, where a provider may reclaim them."""
        return tuple(
            max(1, floor(n * option.uptime + 1e-9)) if n else 0
            for n, option in zip(replicas, self.problem.options, strict=True)
        )

    def _used(self, workload: Workload) -> list[int]:
        load = self.request.workloads.index(workload)
        routes = (way for way in self.problem.routes if way.load == load and runs(way, self.solution.replicas))
        return sorted({leg.option for way in routes for leg in way.legs})

    def _stage(self, option: int) -> Stage:
        role = self.candidates[option].role
        return {"both": Stage.BOTH, "prefill": Stage.PREFILL, "decode": Stage.DECODE}[role]


def _slo(workload: Workload) -> Slo:
    if workload.slo is None:
        raise AssertionError(f"{workload.name} has no objective")
    return workload.slo
