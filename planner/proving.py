"""The proof of a plan: its requests replayed through the fleet it asks for, and headroom where the replay fails.

The rates that a mix is planned with hold in a steady state.  Bursts and mixed sizes may need headroom on top, or leave
room to spare; the replay says which, per workload, and the mix is planned again with the utilisation that it allows.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fleet.demand import DemandSeries
from fleet.slo import Slo
from planner.keeping import kept
from planner.mix import MixSolution, route
from planner.policy import Replay
from planner.problem import Goal, MixProblem
from planner.proof import WorkloadProof
from planner.proof_pools import counts_with, pools_of, unprovable
from planner.questions import Inquiry
from planner.replay import (
    Headroom,
    Pool,
    ReplayResult,
    Stream,
    Tightness,
    Verdict,
    find_headroom,
    judge,
    replay,
    synthetic,
    tightness,
)
from planner.report import routing
from planner.request import PlanRequest, Workload
from planner.search import Candidate
from planner.solvers import SolverError

# Beyond 1 because the rates are on the safe side: a bucket stands for its upper edges.
GRID = (
    0.25,
    0.35,
    0.45,
    0.55,
    0.65,
    0.7,
    0.75,
    0.8,
    0.85,
    0.9,
    0.95,
    1.0,
    1.05,
    1.1,
    1.15,
    1.2,
    1.3,
    1.4,
    1.5,
    1.75,
    2.0,
)
SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Proven:
    """A mix, the problem it answers, and what its replay showed; no proofs where there is nothing to replay."""

    problem: MixProblem
    solution: MixSolution
    proofs: tuple[WorkloadProof, ...]
    obstacle: str | None = None  # why nothing could be replayed

    @property
    def verified(self) -> bool | None:
        """Whether every limit of every workload holds; None where that was not tried."""
        return all(proof.verdict.verified for proof in self.proofs) if self.proofs else None


@dataclass(frozen=True, slots=True)
class Prover:
    """A request with its traffic at hand, so that each plan for it meets the same requests."""

    request: PlanRequest
    candidates: Sequence[Candidate]
    how: Replay
    streams: Mapping[str, Stream]

    @classmethod
    def of(cls, request: PlanRequest, candidates: Sequence[Candidate], how: Replay) -> "Prover":
        """Draw the traffic once."""
        rng = np.random.default_rng(how.seed)
        streams = {one.name: _stream(one, how, rng) for one in request.workloads if one.planned_rps > 0}
        return cls(request, candidates, how, streams)

    def prove(self, inquiry: Inquiry, solution: MixSolution) -> Proven:
        """The proof of this mix, or of the cheapest one whose proof holds."""
        obstacle = self._obstacle(inquiry.problem, solution)
        if obstacle is not None or not solution.status.has_mix:
            return Proven(inquiry.problem, solution, (), obstacle)
        if self.how.size and inquiry.problem.goal is not Goal.SERVED:
            found = self._sized(inquiry)
            if found.best is not None and found.best.plan is not None:
                return self._proven(*found.best.plan)
        return self._proven(inquiry.problem, solution)

    def _obstacle(self, problem: MixProblem, solution: MixSolution) -> str | None:
        return unprovable(self.request, self.candidates, problem, solution.replicas)

    def _sized(self, inquiry: Inquiry) -> Headroom[tuple[MixProblem, MixSolution]]:
        def plan_at(utilisations: Mapping[str, float]) -> tuple[tuple[MixProblem, MixSolution], float] | None:
            problem = at_utilisation(inquiry.problem, utilisations)
            answer = kept(problem, inquiry.about(problem).cheapest(), within=self.request.policy.change.keep_within)
            if answer.goal_value is None or self._obstacle(problem, answer) is not None:
                return None
            return (problem, answer), answer.goal_value

        def verify(plan: tuple[MixProblem, MixSolution]) -> dict[str, bool]:
            return {name: verdict.verified for name, verdict in self._verdicts(*plan).items()}

        return find_headroom(tuple(self.streams), plan_at=plan_at, verify=verify, grid=GRID)

    def _verdicts(self, problem: MixProblem, solution: MixSolution) -> dict[str, Verdict]:
        verdicts = {}
        for workload in self._served():
            result = self._replayed(workload, problem, solution, solution.replicas)
            verdicts[workload.name] = judge(result, _slo(workload))
        return verdicts

    def _proven(self, problem: MixProblem, solution: MixSolution) -> Proven:
        proofs = tuple(self._proof(workload, problem, solution) for workload in self._served())
        return Proven(problem, solution, proofs)

    def _proof(self, workload: Workload, problem: MixProblem, solution: MixSolution) -> WorkloadProof:
        result = self._replayed(workload, problem, solution, solution.replicas)
        verdict = judge(result, _slo(workload))
        position = self.request.workloads.index(workload)
        return WorkloadProof(
            workload=workload.name,
            traffic="drawn" if workload.sizes.trace is None else "trace",
            requests=result.stream.requests,
            hours=result.stream.duration_s / SECONDS_PER_HOUR,
            utilisation=problem.loads[position].utilisation,
            verdict=verdict,
            tightness=self._tightness(workload, problem, solution, result) if verdict.verified else None,
        )

    def _tightness(
        self, workload: Workload, problem: MixProblem, solution: MixSolution, result: ReplayResult
    ) -> Tightness:
        """Each removal is routed anew, as evenly as the rest allows, even beyond what the plan may use of it."""
        position = self.request.workloads.index(workload)
        pools = self._pools(position, problem, solution.replicas)
        eased = at_utilisation(problem, dict.fromkeys(self.streams, max(GRID) * 4))

        def reroute(left: Sequence[Pool]) -> dict[str, dict[str, float]] | None:
            replicas = counts_with(eased, solution.replicas, load=position, pools=left)
            try:
                shares = route(eased, replicas=replicas)
            except SolverError:
                return None
            spread = replace(solution, replicas=replicas, shares=shares)
            return routing(self.request, eased, spread)[workload.name]

        weights = routing(self.request, problem, solution)[workload.name]
        return tightness(result, pools, weights, workload.buckets, _slo(workload), reroute=reroute)

    def _replayed(
        self, workload: Workload, problem: MixProblem, solution: MixSolution, replicas: Sequence[int]
    ) -> ReplayResult:
        position = self.request.workloads.index(workload)
        pools = self._pools(position, problem, replicas)
        weights = routing(self.request, problem, solution)[workload.name]
        return replay(self.streams[workload.name], pools, weights, workload.buckets, seed=self.how.seed)

    def _pools(self, load: int, problem: MixProblem, replicas: Sequence[int]) -> list[Pool]:
        return pools_of(self.request, self.candidates, problem, load=load, replicas=replicas)

    def _served(self) -> list[Workload]:
        return [workload for workload in self.request.workloads if workload.name in self.streams]


def at_utilisation(problem: MixProblem, utilisations: Mapping[str, float]) -> MixProblem:
    """The same with other headroom for these workloads."""
    loads = tuple(replace(load, utilisation=utilisations.get(load.name, load.utilisation)) for load in problem.loads)
    return replace(problem, loads=loads)


def _slo(workload: Workload) -> Slo:
    if workload.slo is None:
        raise AssertionError(f"{workload.name} has no objective")
    return workload.slo


def _stream(workload: Workload, how: Replay, rng: np.random.Generator) -> Stream:
    """A trace as it is, or at the rate or series asked for; without one, requests drawn from the sizes."""
    if workload.sizes.trace is None:
        constant = DemandSeries.constant(workload.planned_rps, duration_s=how.hours * SECONDS_PER_HOUR)
        return synthetic(workload.buckets, workload.demand or constant, rng=rng, cv=workload.arrival_cv)
    stream = Stream.of_trace(workload.sizes.trace)
    if workload.demand is not None:
        return stream.shaped(workload.demand)
    if workload.rate_rps is not None:
        return stream.at_rate(workload.rate_rps, hours=how.hours)
    return stream.repeated(hours=how.hours)


def proof_in_words(proven: Proven) -> Iterator[str]:
    """One line per workload that was replayed, and per limit that did not hold; or why nothing was."""
    if proven.obstacle is not None:
        yield f"not replayed: {proven.obstacle}"
    for proof in proven.proofs:
        traffic = f"{proof.requests:,} requests in {proof.hours:.3g} h ({proof.traffic})"
        verdict = "every limit holds" if proof.verdict.verified else "not every limit holds"
        yield f"{proof.workload}: {verdict} in a replay of {traffic} at {proof.utilisation:.0%} of the rates"
        yield from (f"{proof.workload}: {limit}" for limit in proof.verdict.limits)
        yield from (f"{proof.workload}: {note}" for note in proof.verdict.notes)
        if proof.tightness is not None:
            yield f"{proof.workload}: {_tight_in_words(proof.tightness)}"


def _tight_in_words(found: Tightness) -> str:
    if found.tight:
        return "tight: without any one replica a limit breaks"
    return f"not tight: the replay holds without a replica of {', '.join(spare.option for spare in found.spare)}"
