"""The best balance of small layers, proven layer by layer.

docs/explanation/placement/exact.md.  The start is the incumbent: a program only searches for a lower imbalance, and
where none exists the start is the optimum.  A layer takes from milliseconds to hours, so the time limit divides over
the layers.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fleet.documents import RuleError, Violation
from fleet.solvers import Deadline, Limits, Solver, SolveStatus
from placement.arrays import Floats, Ints
from placement.exact.assignment import AssignmentModel, Case, min_max_load
from placement.exact.pattern_model import list_patterns, lowest_ceiling
from placement.exact.program import Certificate, limits_after_building
from placement.imbalance import imbalance
from placement.layout import Layout
from placement.validation import check_capacity, check_slots

MIN_GAIN = 1e-6  # of an imbalance: smaller gains are within a solver's tolerance
MAX_PATTERNS = 20_000  # with more, the assignment formulation is no larger
LISTING_SHARE = 0.3  # of the time: the rest is for the assignment formulation if the listing does not end
MAX_BINARIES = 200_000  # of one program: a larger one takes longer to build than its time limit


@dataclass(frozen=True, eq=False)
class ExactPlacement:
    expert_of_slot: Ints
    layers: tuple[Certificate, ...]  # of each layer's imbalance


def solve_exact(
    tokens: Floats, *, layout: Layout, limits: Limits, solver: Solver = Solver.HIGHS, start: Ints | None = None
) -> ExactPlacement:
    """The best placement found for loads [layers, experts] under an even split; never worse than `start`.

    Without `start` [layers, slots] the incumbent is the result of the local search.
    """
    experts = tokens.shape[1]
    check_capacity(experts=experts, layout=layout)
    RuleError.raise_for(size_violations(experts, layout))
    start = incumbent(tokens, layout=layout) if start is None else start
    check_slots(start, experts=experts, layout=layout)
    before, deadline = imbalance(start, tokens, layout=layout).per_layer, Deadline.of(limits)
    rows, layers = [], []
    for layer in range(len(tokens)):
        remaining = Deadline.of(deadline.rest(1 / (len(tokens) - layer)))
        case = _case(tokens[layer], layout=layout, ceiling=float(before[layer]) * (1 - MIN_GAIN))
        row, certificate = _layer(
            case, start[layer], float(before[layer]), layout=layout, solver=solver, deadline=remaining
        )
        rows.append(row)
        layers.append(certificate)
    found = np.array(rows, dtype=np.int64)
    check_slots(found, experts=experts, layout=layout)
    return ExactPlacement(found, tuple(layers))


def incumbent(tokens: Floats, *, layout: Layout) -> Ints:
    """The result of the local search, run to a millionth of its bound."""
    from placement.balance import balanced  # noqa: PLC0415 - compiles on import
    from placement.joint import joint_balanced  # noqa: PLC0415 - likewise

    return joint_balanced(tokens, layout=layout, start=balanced(tokens, layout=layout, tolerance=MIN_GAIN))


def size_violations(experts: int, layout: Layout) -> Iterator[Violation]:
    """Whether the program of a layer is too large to build in time."""
    binaries = experts * min(layout.gpus, layout.slots - experts + 1) * layout.gpus
    if binaries > MAX_BINARIES:
        yield (
            ("slots",),
            f"experts times copies times GPUs must be at most {MAX_BINARIES:,} for a proof, got {binaries:,}",
        )


def _layer(
    case: Case, start: Ints, before: float, *, layout: Layout, solver: Solver, deadline: Deadline
) -> tuple[Ints, Certificate]:
    """The better placement of one layer, or the start; over patterns where they can be listed."""
    if case.ceiling <= 1:
        return start, Certificate(before, 1.0, SolveStatus.OPTIMAL)
    patterns = list_patterns(case, ceiling=case.ceiling, deadline=deadline.part(LISTING_SHARE))
    if patterns is None or patterns.count > MAX_PATTERNS:
        row, bound, status = _by_assignment(case, solver=solver, deadline=deadline)
    else:
        row, bound, status = lowest_ceiling(patterns, solver=solver, deadline=deadline)
    proven = max(1.0, case.ceiling if bound is None else min(bound, case.ceiling))
    if row is None:
        return start, Certificate(before, proven, status)
    value = float(imbalance(row[np.newaxis], case.loads[np.newaxis], layout=layout).per_layer[0])
    if value >= before:  # a solver's tolerance is coarser than the gain
        return start, Certificate(before, min(proven, before), status)
    return row, Certificate(value, min(proven, value), status)


def _by_assignment(case: Case, *, solver: Solver, deadline: Deadline) -> tuple[Ints | None, float | None, SolveStatus]:
    """The slots found, the bound, and the status; no slots and no bound: nothing is below the ceiling."""
    begun_s = deadline.limits.clock_s()
    model = AssignmentModel.of(case)
    if not model.has_every_expert:
        return None, None, SolveStatus.OPTIMAL
    program = min_max_load(model).program
    outcome = program.run(solver=solver, limits=limits_after_building(deadline, begun_s=begun_s))
    if outcome.status is SolveStatus.INFEASIBLE:
        return None, None, SolveStatus.OPTIMAL
    if not outcome.status.has_mix:
        return None, outcome.bound, SolveStatus.FEASIBLE
    return model.found(), outcome.bound, outcome.status


def _case(tokens: Floats, *, layout: Layout, ceiling: float) -> Case:
    return Case(
        loads=np.ascontiguousarray(tokens / tokens.sum()),
        shares=layout.shares,
        slots_of_gpu=layout.slots_of_gpu,
        max_copies=min(layout.gpus, layout.slots - len(tokens) + 1),
        ceiling=ceiling,
    )
