"""Validation of a plan: its requests replayed through its replicas (docs/explanation/planner/replay.md, section 5).

The planner's rates hold in a steady state.  Where the replay fails, the planner solves the mix again with headroom;
where replicas are spare, pruning removes them, the most expensive first.  The planner then solves the mix at the
utilisation of the pruned counts, so that its bound holds, and takes a cheaper mix if that also passes the replay.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fleet.demand import DemandSeries
from fleet.documents import RuleError, dotted
from fleet.errors import DocumentError, Problem
from planner.explain.what_if import OutOfTimeError, WhatIf
from planner.options.search import Candidate
from planner.policy import Replay
from planner.problem import MixProblem
from planner.replay import Headroom, Stream, Tightness, Trial, find_headroom, synthetic_arrivals
from planner.request import PlanRequest, Workload
from planner.solve.fixed_counts import at_counts, keep_running, pruned, route
from planner.solve.solution import MixSolution
from planner.validation.scenarios import ANY_LOAD, Counts, Scenarios, WorkloadValidation, replay_obstacle

# Above 1 because the rates are conservative: a bucket stands for its upper edges.  Far below 1 because bursts and long
# prompts can delay short outputs much.
GRID = (
    *(0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
    *(1.1, 1.2, 1.35, 1.5, 1.75, 2.0, 2.5, 3.0),
)
PLANS = 8
SOLVES_PER_LIMIT = 5  # easy plans leave their time to hard ones
MIN_TIME_S = 1.0
SECONDS_PER_HOUR = 3600.0
SLACK = 1e-6  # makes counts feasible at the utilisation computed from them

Solve = Callable[[MixProblem], MixSolution]


@dataclass(frozen=True, slots=True)
class ValidatedPlan:
    """A mix, its problem, and its replay results, which are empty where a replay is not possible."""

    problem: MixProblem
    solution: MixSolution
    proofs: tuple[WorkloadValidation, ...]
    obstacle: str | None = None  # why a replay is not possible
    unproven: tuple[str, ...] = ()  # workloads for whose replay there was no time
    is_cut: bool = False  # for lack of time, something was not tried

    @property
    def verified(self) -> bool | None:
        if not all(proof.verified for proof in self.proofs):
            return False
        return True if self.proofs and not self.unproven else None


@dataclass(frozen=True, slots=True)
class SloValidator:
    """A request with its traffic, so that each plan for it serves the same requests."""

    request: PlanRequest
    candidates: Sequence[Candidate]
    how: Replay
    streams: Mapping[str, Stream]

    @classmethod
    def of(cls, request: PlanRequest, candidates: Sequence[Candidate], how: Replay) -> "SloValidator":
        """Draw the traffic once.  DocumentError names a workload without possible traffic."""
        rng = np.random.default_rng(how.seed)
        streams = {}
        for position, one in enumerate(request.workloads):
            if one.planned_rps > 0:
                try:
                    streams[one.name] = _stream(one, how, rng)
                except RuleError as error:
                    raise _unreplayable(position, error) from error
        return cls(request, candidates, how, streams)

    def validate(self, what_if: WhatIf, solution: MixSolution) -> ValidatedPlan:
        """Validate this mix, or find the cheapest one whose replay holds, until the deadline of `what_if`."""
        obstacle = self._obstacle(what_if.problem, solution)
        if obstacle is not None or not solution.status.has_mix:
            return ValidatedPlan(what_if.problem, solution, (), obstacle)
        trials = self._trials(what_if, what_if.problem, solution)
        if not self.how.size or not what_if.problem.objective.serves_all:
            return self._proven(trials)
        found = self._sized(what_if, solution)
        if found.best is not None and found.best.plan is not None:
            best, is_cut = self._trimmed(what_if, found.best.plan)
            return self._proven(best, is_cut=is_cut or found.is_cut)
        chosen = _with_max_headroom(found)
        return self._proven(chosen.plan if chosen is not None and chosen.plan else trials, is_cut=found.is_cut)

    def _trimmed(self, what_if: WhatIf, trials: Scenarios) -> tuple[Scenarios, bool]:
        """Prune spare replicas, unless the request gives a utilisation: that is the user's headroom.

        Returns the plan as it was, whose replay holds, when the time ends before that of the pruned one; and whether
        the time ended.
        """
        if self.request.utilisation is not None:
            return trials, False
        served = self._served()
        try:
            counts = pruned(
                trials.problem, trials.solution.replicas, holds=lambda fewer: trials.hold_with(fewer, served)
            )
            if counts == trials.solution.replicas:
                return trials, False
            tight, best, mine = resolved_at_utilisation(
                trials.problem, counts, solve=lambda new: what_if.with_problem(new).cheapest()
            )
            if best.objective_value is not None and self._obstacle(tight, best) is None:
                again = self._trials(what_if, tight, best)
                if best.replicas != mine.replicas and all(again.holds(workload) for workload in served):
                    return again, False
            fewer = self._trials(what_if, tight, mine)
            for workload in served:
                fewer.check(workload)
        except OutOfTimeError:
            return trials, True
        return fewer, False

    def _obstacle(self, problem: MixProblem, solution: MixSolution) -> str | None:
        return replay_obstacle(self.request, self.candidates, problem, solution.replicas)

    def _sized(self, what_if: WhatIf, first: MixSolution) -> Headroom[Scenarios]:
        budget = max(MIN_TIME_S, what_if.limits.time_limit_s / SOLVES_PER_LIMIT)
        quick = replace(what_if, limits=replace(what_if.limits, time_limit_s=budget))

        def plan_at(utilisations: Mapping[str, float]) -> tuple[Scenarios, float] | None:
            problem = at_utilisation(what_if.problem, utilisations)
            result = first
            if problem != what_if.problem:
                solved = quick.with_problem(problem).cheapest()
                result = keep_running(problem, solved, within=self.request.policy.change.keep_within)
            if result.objective_value is None or self._obstacle(problem, result) is not None:
                return None
            return self._trials(what_if, problem, result), result.objective_value

        def verify(trials: Scenarios) -> dict[str, bool] | None:
            try:
                return {workload.name: trials.holds(workload) for workload in self._served()}
            except OutOfTimeError:
                return None

        ceiling = self.request.utilisation
        grid = GRID if ceiling is None else (*(step for step in GRID if step < ceiling), ceiling)
        start = 1.0 if ceiling is None else ceiling
        return find_headroom(
            tuple(self.streams),
            plan_at=plan_at,
            verify=verify,
            grid=grid,
            start=start,
            max_plans=PLANS,
            has_time=lambda: what_if.has_time,
        )

    def _proven(self, trials: Scenarios, *, is_cut: bool = False) -> ValidatedPlan:
        proofs, unproven = [], []
        for workload in self._served():
            try:
                proof = self._proof(trials, workload)
            except OutOfTimeError:
                unproven.append(workload.name)
                continue
            if proof.verified:
                try:
                    proof = proof.model_copy(update={"tightness": trials.tightness(workload)})
                except OutOfTimeError:
                    is_cut = True
            proofs.append(proof)
        return ValidatedPlan(
            trials.problem,
            trials.solution,
            tuple(proofs),
            unproven=tuple(unproven),
            is_cut=is_cut or bool(unproven),
        )

    def _proof(self, trials: Scenarios, workload: Workload) -> WorkloadValidation:
        slo_check, losses = trials.check(workload), trials.losses(workload)
        stream = self.streams[workload.name]
        return WorkloadValidation(
            workload=workload.name,
            traffic="drawn" if workload.sizes.trace is None else "trace",
            requests=stream.requests,
            hours=stream.duration_s / SECONDS_PER_HOUR,
            utilisation=trials.problem.loads[self.request.workloads.index(workload)].utilisation,
            slo_check=slo_check,
            losses=losses,
            tightness=None,
        )

    def _trials(self, what_if: WhatIf, problem: MixProblem, solution: MixSolution) -> Scenarios:
        return Scenarios(
            self.request,
            self.candidates,
            problem,
            solution,
            self.streams,
            self.how.seed,
            has_time=lambda: what_if.has_time,
        )

    def _served(self) -> list[Workload]:
        return [workload for workload in self.request.workloads if workload.name in self.streams]


def resolved_at_utilisation(
    problem: MixProblem, replicas: Counts, *, solve: Solve
) -> tuple[MixProblem, MixSolution, MixSolution]:
    """The problem at the utilisation of these counts, its best mix, and these counts as its solution."""
    tight = _at_their_utilisation(problem, replicas)
    best = solve(tight)
    mine = at_counts(tight, best, replicas)
    return tight, best, best if mine is None else mine


def _at_their_utilisation(problem: MixProblem, replicas: Counts) -> MixProblem:
    """The lowest utilisation per workload at which these counts, evenly used, are a solution; losses included."""
    free = replace(problem, loads=tuple(replace(load, utilisation=ANY_LOAD) for load in problem.loads))
    needed = [0.0] * len(problem.loads)
    for counts in (replicas, *(loss.survivors(replicas) for loss in problem.losses)):
        shares = route(free, replicas=counts)
        busy: dict[tuple[int, int], float] = {}
        for (r, b), share in shares.items():
            way = problem.routes[r]
            for leg in way.legs:
                key = way.load, leg.option
                busy[key] = busy.get(key, 0.0) + share * problem.busy_per_share(way, leg, b)
        for (load, option), replicas_busy in busy.items():
            there = counts[option] * problem.options[option].uptime
            needed[load] = max(needed[load], replicas_busy / there)
    loads = tuple(
        replace(load, utilisation=used * (1 + SLACK) if used > 0 else load.utilisation)
        for load, used in zip(problem.loads, needed, strict=True)
    )
    return replace(problem, loads=loads)


def at_utilisation(problem: MixProblem, utilisations: Mapping[str, float]) -> MixProblem:
    loads = tuple(replace(load, utilisation=utilisations.get(load.name, load.utilisation)) for load in problem.loads)
    return replace(problem, loads=loads)


def validation_text(proven: ValidatedPlan) -> Iterator[str]:
    if proven.obstacle is not None:
        yield f"not replayed: {proven.obstacle}"
    for name in proven.unproven:
        yield f"{name}: not replayed: the time limit expired"
    for proof in proven.proofs:
        traffic = f"{proof.requests:,} requests in {proof.hours:.3g} h ({proof.traffic})"
        result = "every limit holds" if proof.slo_check.verified else "not every limit holds"
        yield f"{proof.workload}: {result} in a replay of {traffic}, planned at {proof.utilisation:.0%} of the rates"
        yield from (f"{proof.workload}: {limit}" for limit in proof.slo_check.limits)
        for loss in proof.losses:
            broken = "; ".join(map(str, loss.broken)) or "the remaining replicas cannot serve every size"
            yield f"{proof.workload}: without {loss.name} {'every limit holds' if loss.verified else broken}"
        yield from (f"{proof.workload}: {note}" for note in proof.slo_check.notes)
        if proof.tightness is not None:
            yield f"{proof.workload}: {_tightness_text(proof.tightness)}"


def _tightness_text(found: Tightness) -> str:
    if found.tight:
        return "tight: without any one replica a limit breaks"
    spare = ", ".join(dict.fromkeys(removal.option for removal in found.spare))
    return f"not tight: the replay also holds with one replica less of {spare}"


def _with_max_headroom(found: Headroom[Scenarios]) -> Trial[Scenarios] | None:
    planned = [trial for trial in found.trials if trial.plan is not None]
    return min(planned, key=lambda trial: sum(trial.utilisations.values()), default=None)


def replayed_requests(request: PlanRequest) -> float:
    """How many requests a validation replays per trial, over all workloads, before any is drawn."""
    if request.proof is None:
        return 0.0
    hours_s = request.proof.hours * SECONDS_PER_HOUR
    return sum(
        workload.demand.requests if workload.demand is not None else workload.planned_rps * hours_s
        for workload in request.workloads
    )


def _stream(workload: Workload, how: Replay, rng: np.random.Generator) -> Stream:
    """The trace as recorded, or at the requested rate or series; without a trace, requests drawn from the sizes."""
    if workload.sizes.trace is None:
        constant = DemandSeries.constant(workload.planned_rps, duration_s=how.hours * SECONDS_PER_HOUR)
        return synthetic_arrivals(workload.buckets, workload.demand or constant, rng=rng, cv=workload.arrival_cv)
    stream = Stream.of_trace(workload.sizes.trace)
    if workload.demand is not None:
        return stream.shaped(workload.demand)
    if workload.rate_rps is not None:
        return stream.at_rate(workload.rate_rps, hours=how.hours)
    return stream.repeated(hours=how.hours)


def _unreplayable(position: int, error: RuleError) -> DocumentError:
    at = dotted(("workloads", position))
    problems = [Problem(at, f"cannot be replayed: {message}") for _, message in error.violations]
    return DocumentError(name="request", problems=problems)
