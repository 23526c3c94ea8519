"""MoETuner's first program (arXiv 2502.06643): experts into clusters of free size, one cluster per GPU and layer.

docs/placement/exact.md, section 6.  Published without replicas and with the sum of deviations as objective, layer by
layer; here also with copies, with the busiest GPU as objective, and with the memory of all layers counted together,
which makes one program of all of them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fleet.documents import RuleError, Violation
from fleet.solvers import Deadline, Limits, Solver, SolverError, SolveStatus
from placement.arrays import Floats, Ints
from placement.exact.balance_model import BalanceModel, Case, Objective
from placement.exact.balance_rows import most_balanced
from placement.exact.exchange import Held
from placement.exact.program import Certificate


@dataclass(frozen=True, eq=False)
class Clusters:
    """Which experts lie together, and how good by the objective."""

    held: Held
    proof: Certificate  # of the mean over layers

    @property
    def sizes(self) -> Ints:
        """[layers, clusters]: experts in each."""
        counted: Ints = self.held.sum(axis=1)
        return counted


def clusters(
    tokens: Floats,
    *,
    gpus: int,
    limits: Limits,
    objective: Objective = Objective.DEVIATION,
    copies: int | None = None,
    copies_of_gpu: Sequence[int] | None = None,
    solver: Solver = Solver.HIGHS,
) -> Clusters:
    """Of loads [layers, experts]: `copies` of experts per layer at most (absent: one each), and on each GPU over all
    layers `copies_of_gpu` at most (absent: no limit, and layer by layer).
    """
    RuleError.raise_for(_violations(tokens, gpus, copies, copies_of_gpu))
    deadline = Deadline.of(limits)
    if copies_of_gpu is not None:
        room = np.array(copies_of_gpu, dtype=np.int64)
        return _solved(_case(tokens, gpus, copies, room), objective, solver=solver, limits=limits)
    found = []
    for layer in range(len(tokens)):
        case = _case(tokens[layer : layer + 1], gpus, copies, None)
        left = deadline.rest(1 / (len(tokens) - layer))
        found.append(_solved(case, objective, solver=solver, limits=left))
    return Clusters(np.concatenate([one.held for one in found]), _mean([one.proof for one in found]))


def loads_of(held: Held, tokens: Floats) -> Floats:
    """[layers, clusters]: tokens of each when copies share an expert's equally."""
    loads: Floats = np.einsum("le,lec->lc", tokens / held.sum(axis=2), held)
    return loads


def objective_of(held: Held, tokens: Floats, objective: Objective) -> float:
    """What the program minimises: the mean over layers of the peak, or of the distance from an even share."""
    relative = loads_of(held, tokens) / tokens.sum(axis=1, keepdims=True) * held.shape[2]
    per_layer = relative.max(axis=1) if objective is Objective.PEAK else np.abs(relative - 1).mean(axis=1)
    return float(per_layer.mean())


def _solved(case: Case, objective: Objective, *, solver: Solver, limits: Limits) -> Clusters:
    model = most_balanced(BalanceModel.of(case), objective)
    outcome = model.program.run(solver=solver, limits=limits)
    if outcome.status is SolveStatus.INFEASIBLE:
        fault = ("copies_of_gpu",), "leaves no room for the experts with at least one on each GPU in each layer"
        raise RuleError([fault])
    if not outcome.status.has_mix:
        raise SolverError(f"{solver}: no clustering found within {limits.time_limit_s:g} s")
    held = model.found()
    value = objective_of(held, case.parts, objective)
    least = 1.0 if objective is Objective.PEAK else 0.0
    return Clusters(held, Certificate(value, min(value, max(least, outcome.bound)), outcome.status))


def _case(tokens: Floats, gpus: int, copies: int | None, copies_of_gpu: Ints | None) -> Case:
    spare = 0 if copies is None else copies - tokens.shape[1]
    return Case(
        parts=np.ascontiguousarray(tokens / tokens.sum(axis=1, keepdims=True)),
        shares=np.full(gpus, 1.0 / gpus),
        most_copies=min(gpus, spare + 1),
        copies_of_gpu=copies_of_gpu,
        copies=copies,
    )


def _mean(proofs: Sequence[Certificate]) -> Certificate:
    proven = all(proof.status is SolveStatus.OPTIMAL for proof in proofs)
    return Certificate(
        value=float(np.mean([proof.value for proof in proofs])),
        bound=float(np.mean([proof.bound for proof in proofs])),
        status=SolveStatus.OPTIMAL if proven else SolveStatus.FEASIBLE,
    )


def _violations(
    tokens: Floats, gpus: int, copies: int | None, copies_of_gpu: Sequence[int] | None
) -> Iterator[Violation]:
    layers, experts = tokens.shape
    if not 1 <= gpus <= experts:
        yield ("gpus",), f"must be from 1 to the number of experts ({experts}), got {gpus}"
    if copies is not None and not experts <= copies <= experts * gpus:
        yield ("copies",), f"must be from {experts} (one each) to {experts * gpus} (one on each GPU), got {copies}"
    if copies_of_gpu is not None:
        if len(copies_of_gpu) != gpus:
            yield ("copies_of_gpu",), f"must be one number per GPU ({gpus}), got {len(copies_of_gpu)}"
        elif sum(copies_of_gpu) < layers * experts or min(copies_of_gpu) < layers:
            least = f"must be at least {layers} each (one per layer) and {layers * experts} together"
            yield ("copies_of_gpu",), least
