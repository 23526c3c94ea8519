"""The best balance of few experts, proven: replica counts and places by integer programming, layer by layer.

docs/placement/exact.md.  The heuristics' answer goes in as a ceiling: the program looks only for what is better, and
where it finds that nothing is, that answer is the optimum.  A layer costs from milliseconds to hours, so this is a
certificate for small cases and no planner for large ones.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fleet.documents import RuleError, Violation
from fleet.solvers import Deadline, Limits, Solver, SolveStatus
from placement.arrays import Floats, Ints
from placement.exact.balance_model import BalanceModel, Case, Objective
from placement.exact.balance_rows import most_balanced
from placement.exact.exchange import Held
from placement.exact.gpu_pattern_rows import least_ceiling
from placement.exact.gpu_patterns import fillings
from placement.exact.program import Certificate, after_building
from placement.imbalance import imbalance
from placement.layout import Layout
from placement.validation import check_room, check_slots

MIN_GAIN = 1e-6  # of an imbalance: smaller ones lie within a solver's tolerance
MAX_FILLINGS = 20_000  # of a GPU; of more the program by places is no larger
LISTING = 0.3  # of the time: what is left is for the program by places, should listing not end
MAX_CHOICES = 200_000  # binaries of one program; what is larger would not even be built in time


@dataclass(frozen=True, eq=False)
class ExactBalance:
    """A placement, and per layer how good it is and could at most be."""

    expert_of_slot: Ints
    layers: tuple[Certificate, ...]  # of each layer's imbalance

    @property
    def imbalance(self) -> float:
        """Mean over the layers."""
        return float(np.mean([layer.value for layer in self.layers]))

    @property
    def bound(self) -> float:
        """Proven: no placement has a lower mean."""
        return float(np.mean([layer.bound for layer in self.layers]))

    @property
    def gap(self) -> float:
        """At most so far from the optimum, as a part of the imbalance."""
        return (self.imbalance - self.bound) / self.imbalance

    @property
    def status(self) -> SolveStatus:
        """Optimal where every layer is, up to the gap asked for and a millionth."""
        proven = all(layer.status is SolveStatus.OPTIMAL for layer in self.layers)
        return SolveStatus.OPTIMAL if proven else SolveStatus.FEASIBLE


def most_even(
    tokens: Floats, *, layout: Layout, limits: Limits, solver: Solver = Solver.HIGHS, start: Ints | None = None
) -> ExactBalance:
    """Of loads [layers, experts] under equal split.  `start` is a placement to be beaten; absent: the heuristics'."""
    experts = tokens.shape[1]
    check_room(experts=experts, layout=layout)
    RuleError.raise_for(_size_violations(experts, layout))
    first = heuristic(tokens, layout=layout) if start is None else start
    check_slots(first, experts=experts, layout=layout)
    begun, deadline = imbalance(first, tokens, layout=layout).per_layer, Deadline.of(limits)
    rows, layers = [], []
    for layer in range(len(tokens)):
        left = Deadline.of(deadline.rest(1 / (len(tokens) - layer)))
        case = _case(tokens[layer], layout=layout, ceiling=float(begun[layer]) * (1 - MIN_GAIN))
        row, certificate = _layer(case, first[layer], float(begun[layer]), layout=layout, solver=solver, deadline=left)
        rows.append(row)
        layers.append(certificate)
    placed = np.array(rows, dtype=np.int64)
    check_slots(placed, experts=experts, layout=layout)
    return ExactBalance(placed, tuple(layers))


def heuristic(tokens: Floats, *, layout: Layout) -> Ints:
    """What the searches find: copies, packing and swaps, then counts and packing together."""
    from placement.balance import balanced  # noqa: PLC0415 - compiles on import
    from placement.joint import joint_balanced  # noqa: PLC0415 - likewise

    return joint_balanced(tokens, layout=layout, start=balanced(tokens, layout=layout, tolerance=MIN_GAIN))


def slots_of(held: Held) -> Ints:
    """[layers, slots] of [layers, experts, GPUs], where every GPU holds as many in each layer."""
    return np.array([np.nonzero(layer.T)[1] for layer in held], dtype=np.int64)


def _layer(
    case: Case, start: Ints, begun: float, *, layout: Layout, solver: Solver, deadline: Deadline
) -> tuple[Ints, Certificate]:
    """One layer: what the program found, or else the start.  Over fillings of a GPU where they can be listed."""
    ceiling = begun * (1 - MIN_GAIN)
    if ceiling <= 1:  # even, up to the millionth
        return start, Certificate(begun, 1.0, SolveStatus.OPTIMAL)
    listed = fillings(case, ceiling=ceiling, deadline=deadline.part(LISTING))
    if listed is None or listed.count > MAX_FILLINGS:
        row, bound, status = _by_places(case, solver=solver, deadline=deadline)
    else:
        row, bound, status = least_ceiling(listed, solver=solver, deadline=deadline)
    proven = max(1.0, ceiling if bound is None else min(bound, ceiling))
    if row is None:
        return start, Certificate(begun, proven, status)
    value = float(imbalance(row[np.newaxis], case.parts, layout=layout).per_layer[0])
    return row, Certificate(value, min(proven, value), status)


def _by_places(case: Case, *, solver: Solver, deadline: Deadline) -> tuple[Ints | None, float | None, SolveStatus]:
    """The program of one variable per copy and GPU; no slots, no bound: nothing is better than the ceiling."""
    begun_s = deadline.limits.clock_s()
    model = BalanceModel.of(case)
    if len({expert for _, expert, _ in model.counts}) < case.experts:  # one is above the ceiling wherever it lies
        return None, None, SolveStatus.OPTIMAL
    program = most_balanced(model, Objective.PEAK).program
    outcome = program.run(solver=solver, limits=after_building(deadline, begun_s=begun_s))
    if outcome.status is SolveStatus.INFEASIBLE:
        return None, None, SolveStatus.OPTIMAL
    if not outcome.status.has_mix:
        return None, outcome.bound, SolveStatus.FEASIBLE
    return slots_of(model.found())[0], outcome.bound, outcome.status


def _case(tokens: Floats, *, layout: Layout, ceiling: float) -> Case:
    spare = layout.slots - len(tokens)
    return Case(
        parts=np.ascontiguousarray(tokens[np.newaxis] / tokens.sum()),
        shares=layout.shares,
        most_copies=min(layout.gpus, spare + 1),
        slots_of_gpu=layout.slots_of_gpu,
        ceiling=ceiling,
    )


def _size_violations(experts: int, layout: Layout) -> Iterator[Violation]:
    choices = experts * min(layout.gpus, layout.slots - experts + 1) * layout.gpus
    if choices > MAX_CHOICES:
        yield (
            ("slots",),
            f"experts times copies times GPUs must be at most {MAX_CHOICES:,} for a proof, got {choices:,}",
        )
