"""The entry: from a mix problem of many workloads to a mix and its proof."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from fleet.solvers import Limits, SolverError, SolveStatus
from planner.problem import MixProblem
from planner.solve.branch_and_price.blocks import Block, Floats, blocks_of, coupling_of
from planner.solve.branch_and_price.column_generation import MIN_PRECISION, ColumnGeneration
from planner.solve.branch_and_price.search import Incumbent, Progress, Search, cheapest_units
from planner.solve.fixed_counts import route
from planner.solve.solution import MixSolution, Shares

PRECISION_PER_GAP = 0.05  # of the allowed gap, which pricing may leave unproven
ROUTING_S_PER_BLOCK = 0.03  # reserved of the time limit, at most a fifth of it


@dataclass(frozen=True, slots=True)
class Solved:
    solution: MixSolution
    progress: Progress


def decomposes(problem: MixProblem) -> bool:
    """Whether the method applies and there is more than one block."""
    return (
        problem.objective.is_price_only
        and not problem.losses
        and not problem.own_nodes
        and not problem.erring_buckets
        and problem.change.max_started is None
        and problem.change.max_stopped is None
        and all(option.uptime > 0 for option in problem.options)
        and all(weight >= 0 for limit in problem.limits for weight in limit.replicas.values())
        and len(blocks_of(problem)) > 1
    )


def solve_decomposed(problem: MixProblem, *, limits: Limits, clock_s: Callable[[], float]) -> Solved:
    started_s = clock_s()
    blocks = blocks_of(problem)
    if not all(block.is_servable for block in blocks):
        nothing = MixSolution.without_mix(problem, status=SolveStatus.INFEASIBLE, bound=inf)
        return Solved(nothing, Progress(inf, is_complete=True, nodes=0, rounds=0, columns=0))
    reserve_s = min(ROUTING_S_PER_BLOCK * len(blocks), limits.time_limit_s / 5)

    def seconds_left() -> float:
        return limits.time_limit_s - reserve_s - (clock_s() - started_s)

    coupling = coupling_of(problem, blocks)
    generation = ColumnGeneration(
        blocks, coupling, precision=max(MIN_PRECISION, PRECISION_PER_GAP * limits.relative_gap)
    )
    incumbent = Incumbent(blocks, coupling)
    search = Search(generation, incumbent, limits.relative_gap, seconds_left)
    progress = search.run()
    if incumbent.value == inf:
        status = SolveStatus.INFEASIBLE if progress.is_complete else SolveStatus.TIME_LIMIT
        bound = inf if progress.is_complete else max(0.0, progress.bound)
        return Solved(MixSolution.without_mix(problem, status=status, bound=bound), progress)
    status = SolveStatus.OPTIMAL if progress.is_complete else SolveStatus.FEASIBLE
    counts = [_without_spare(generation, position, n) for position, n in enumerate(incumbent.counts)]
    return Solved(_solution(problem, incumbent, counts, status=status, bound=progress.bound), progress)


def _without_spare(generation: ColumnGeneration, position: int, counts: Floats) -> Floats:
    """Remove replicas that the block does not need, the largest first."""
    pricer, coupling = generation.pricers[position], generation.coupling
    use = coupling.replicas[:, pricer.block.options].sum(axis=0)
    for o in np.argsort(-use, kind="stable"):
        while counts[o] > 0:
            fewer = counts.copy()
            fewer[o] -= 1
            if any(fewer[options].sum() < count for options, count in pricer.block.fewest) or not pricer.serves(fewer):
                break
            counts = fewer
    return counts


def _solution(
    problem: MixProblem, incumbent: Incumbent, counts: Sequence[Floats], *, status: SolveStatus, bound: float
) -> MixSolution:
    units = cheapest_units(incumbent.coupling, incumbent.use(counts))
    if units is None:
        raise SolverError("fewer replicas than the incumbent's do not fit on its units")
    hired = tuple(int(count) for count in units)
    replicas = [0] * len(problem.options)
    for block, of_block in zip(incumbent.blocks, counts, strict=True):
        for o, count in zip(block.options, of_block, strict=True):
            replicas[o] = int(count)
    shares = _shares(problem, incumbent.blocks, replicas)
    return MixSolution.of(
        problem, status=status, bound=max(0.0, bound), units=hired, replicas=tuple(replicas), shares=shares
    )


def _shares(problem: MixProblem, blocks: Sequence[Block], replicas: Sequence[int]) -> Shares:
    shares: Shares = {}
    for block in blocks:
        numbers, alone = _alone(problem, block)
        of_block = [replicas[o] for o in block.options]
        for (position, b), share in route(alone, replicas=of_block).items():
            shares[numbers[position], b] = share
    return shares


def _alone(problem: MixProblem, block: Block) -> tuple[list[int], MixProblem]:
    load_at = {w: position for position, w in enumerate(block.loads)}
    option_at = {int(o): position for position, o in enumerate(block.options)}
    numbers = [r for r, way in enumerate(problem.routes) if way.load in load_at]
    routes = tuple(
        replace(way, load=load_at[way.load], legs=tuple(replace(leg, option=option_at[leg.option]) for leg in way.legs))
        for way in (problem.routes[r] for r in numbers)
    )
    loads = tuple(problem.loads[w] for w in block.loads)
    options = tuple(problem.options[o] for o in block.options)
    return numbers, MixProblem(loads, problem.supplies, options, routes)
