"""Reference optima: a linear program for mixed clocks, and enumeration for whole clocks."""

from itertools import product

import numpy as np
import pulp

from fleet.solvers import Limits, Solver, SolveStatus, run
from power.measured_models import builtin_shares
from power.measured_models.document import LimitSweep
from power.training.operating_points import Choice, Computation, choices_of, effective_j, hull_of
from power.training.schedules import Iteration, Schedule, one_forward_one_backward, pipeline

CURVE: LimitSweep = next(one for one in builtin_shares().sweeps if one.name == "V100")


def made_up(
    *,
    stages: int,
    microbatches: int,
    clocks: tuple[float, ...] = (1.0, 0.8, 0.6),
    seed: int = 0,
    uneven: float = 0.3,
    schedule: Schedule = one_forward_one_backward,
) -> Iteration:
    """A pipeline whose stages differ."""
    random = np.random.default_rng(seed)
    times = 1 + uneven * random.random(stages)
    passes = [
        [
            choices_of(time_s=float(share * time), power_w=300.0, curve=CURVE, sensitivity=0.28, clocks=clocks)
            for time in times
        ]
        for share in (1.0, 2.0)
    ]
    return pipeline(forward=passes[0], backward=passes[1], microbatches=microbatches, blocked_w=75.0, schedule=schedule)


def any_graph(seed: int) -> Iteration:
    """Random different computations with random dependencies: without the symmetry of a pipeline."""
    random = np.random.default_rng(seed)
    count = int(random.integers(2, 7))
    computations = [
        Computation(
            name=str(at),
            stage=0,
            choices=choices_of(
                time_s=float(random.uniform(0.1, 3.0)),
                power_w=float(random.uniform(100, 500)),
                curve=CURVE,
                sensitivity=float(random.uniform(0.1, 1.0)),
                clocks=tuple(np.linspace(1, 0.4, int(random.integers(1, 7))).tolist()),
            ),
        )
        for at in range(count)
    ]
    waits = [(before, after) for after in range(count) for before in range(after) if random.random() < 0.3]
    return Iteration(tuple(computations), tuple(waits), float(random.choice([0.0, 60.0, 90.0])), count)


def min_mixed_j(iteration: Iteration, deadline_s: float) -> float | None:
    """Solve by a linear program with mixed clocks; None if the deadline is infeasible."""
    program = pulp.LpProblem("mixed", pulp.LpMinimize)
    count = len(iteration.computations)
    starts = [program.add_variable(f"s{at}", 0, deadline_s) for at in range(count)]
    times, cost = [], []
    for at, one in enumerate(iteration.computations):
        hull = hull_of(one.choices, blocked_w=iteration.blocked_w)
        shares = [program.add_variable(f"x{at}_{level}", 0, 1) for level in range(len(hull))]
        program += pulp.lpSum(shares) == 1
        times.append(pulp.lpSum(choice.time_s * share for choice, share in zip(hull, shares, strict=True)))
        cost += [effective_j(choice, iteration.blocked_w) * share for choice, share in zip(hull, shares, strict=True)]
    for before, after in iteration.waits:
        program += starts[before] + times[before] <= starts[after]
    for start, time in zip(starts, times, strict=True):
        program += start + time <= deadline_s
    program.setObjective(pulp.lpSum(cost))
    outcome = run(program, solver=Solver.HIGHS, limits=Limits(time_limit_s=60))
    if outcome.status is not SolveStatus.OPTIMAL:
        return None
    return float(pulp.value(program.objective)) + iteration.blocked_w * iteration.stages * deadline_s


def min_whole_j(iteration: Iteration, deadline_s: float) -> float:
    """The least energy over all combinations of clocks."""
    best = np.inf
    for choices in product(*(one.choices for one in iteration.computations)):
        best = min(best, _energy_by(iteration, choices, deadline_s))
    return best


def _energy_by(iteration: Iteration, choices: tuple[Choice, ...], deadline_s: float) -> float:
    if iteration.time_s([choice.time_s for choice in choices]) > deadline_s * (1 + 1e-9):
        return np.inf
    return iteration.energy_j(choices)
