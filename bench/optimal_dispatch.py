"""What a dispatcher that may share an expert's tokens among its copies in any way could make of a placement.

As LPLB and SGLang's `lp` do batch by batch; here with the loads known, so it is the best they can reach.
"""

import numpy as np
import pulp

from fleet.solvers import Limits, Solver, run
from placement.arrays import Floats, Ints
from placement.balance import balanced
from placement.bounds.lower_bound import greedy_counts
from placement.imbalance import imbalance
from placement.layout import Layout

LIMITS = Limits(time_limit_s=20.0)


def best_split(expert_of_slot: Ints, tokens: Floats, *, layout: Layout) -> float:
    """The mean over the layers of the fullest GPU, for the best shares: a linear program per layer."""
    weights = tokens / tokens.sum(axis=1, keepdims=True) * layout.gpus
    peaks = [_peak(row, layer, layout) for row, layer in zip(expert_of_slot, weights, strict=True)]
    return float(np.mean(peaks))


def _peak(experts: Ints, weights: Floats, layout: Layout) -> float:
    program = pulp.LpProblem("split", pulp.LpMinimize)
    peak = program.add_variable("peak", 0)
    taken = [program.add_variable(f"x_{slot}", 0) for slot in range(layout.slots)]
    program.setObjective(peak)
    for expert, weight in enumerate(weights.tolist()):
        program += pulp.lpSum(taken[slot] for slot in np.flatnonzero(experts == expert)) == weight
    for gpu in range(layout.gpus):
        program += pulp.lpSum(taken[slice(*layout.first_slot[gpu : gpu + 2])]) <= peak
    return run(program, solver=Solver.HIGHS, limits=LIMITS).bound


def planned_for_best_split(tokens: Floats, *, slots: int, gpus: int) -> float:
    """The same mean for two slots per GPU, planned for free shares.

    The c GPUs of an expert of c copies act as one, c times as fast, with room for c others and the expert once: shares
    even them out.  So single copies are packed on such GPUs and the rest.
    """
    weights = tokens / tokens.sum(axis=1, keepdims=True) * gpus
    counts = greedy_counts(weights, slots=slots, most=gpus)
    return float(np.mean([_packed(*layer, gpus) for layer in zip(tokens, counts, strict=True)]))


def _packed(tokens: Floats, counts: Ints, gpus: int) -> float:
    several = np.sort(counts[counts > 1])
    speeds = np.concatenate([several, np.ones(gpus - several.sum(), dtype=np.int64)])
    layout = Layout.of(
        node_of_gpu=[0] * len(speeds), slots_of_gpu=(speeds + 1).tolist(), speeds=speeds.astype(float).tolist()
    )
    rows = tokens[np.newaxis]
    return imbalance(balanced(rows, layout=layout), rows, layout=layout).mean
