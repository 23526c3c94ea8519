"""DeepSeek-V3's router as a model of token choices, with biases fitted to loads: see `synthetic_trace`."""

import numpy as np
import numpy.typing as npt
from numba import float32, float64, int16, int64, void

from fleet.numba_cache import jit_entry, jit_inner
from placement.arrays import Experts, Floats

Singles = npt.NDArray[np.float32]

ONE = np.float32(1.0)
SILENT = 0.5  # tokens of an expert that no token chose


@jit_inner
def _keep_groups(scores: Singles, groups: int, active_groups: int, best: Singles, kept: Experts) -> None:
    """Mark the groups of one token."""
    size = len(scores) // groups
    for group in range(groups):
        first = second = np.float32(-np.inf)
        for expert in range(group * size, (group + 1) * size):
            second = max(second, min(first, scores[expert]))
            first = max(first, scores[expert])
        best[group] = first / (ONE + abs(first))
        if size > 1:
            best[group] += second / (ONE + abs(second))
        kept[group] = 0
    for _ in range(active_groups):
        chosen = -1
        for group in range(groups):
            if kept[group] == 0 and (chosen < 0 or best[group] > best[chosen]):
                chosen = group
        kept[chosen] = 1


@jit_inner
def _take(scores: Singles, groups: int, kept: Experts, taken: Experts, values: Singles) -> None:
    """The best experts of one token among its groups, best first."""
    active, size = len(taken), len(scores) // groups
    values[:] = -np.inf
    least = values[active - 1]
    for group in range(groups):
        if kept[group] == 0:
            continue
        for expert in range(group * size, (group + 1) * size):
            score = scores[expert]
            if score <= least:
                continue
            at = active - 1
            while at > 0 and values[at - 1] < score:
                values[at], taken[at] = values[at - 1], taken[at - 1]
                at -= 1
            values[at], taken[at] = score, expert
            least = values[active - 1]


@jit_inner
def _route(scores: Singles, bias: Singles, groups: int, active_groups: int, taken: Experts) -> None:
    """Route all tokens of one layer."""
    tokens, experts = scores.shape
    biased, values = np.empty(experts, np.float32), np.empty(taken.shape[1], np.float32)
    best, kept = np.empty(groups, np.float32), np.ones(groups, np.int16)
    for token in range(tokens):
        for expert in range(experts):
            biased[expert] = scores[token, expert] + bias[expert]
        if active_groups < groups:
            _keep_groups(biased, groups, active_groups, best, kept)
        _take(biased, groups, kept, taken[token], values)


@jit_entry(void(float32[:, ::1], float64[::1], int64, int64, int64, float64, float32[::1], int16[:, ::1]))
def fit(  # noqa: PLR0917 - compiled code takes no keywords
    scores: Singles,
    wanted: Floats,
    groups: int,
    active_groups: int,
    rounds: int,
    step: float,
    bias: Singles,
    taken: Experts,
) -> None:
    """Adjust biases, then route; `wanted` [experts] are the tokens that each should receive."""
    tokens, active = taken.shape
    found = np.empty(len(wanted))
    for at in range(rounds + 1):
        _route(scores, bias, groups, active_groups, taken)
        if at == rounds:
            return
        found[:] = 0.0
        for token in range(tokens):
            for a in range(active):
                found[taken[token, a]] += 1.0
        for expert in range(len(wanted)):
            bias[expert] += step * np.log(max(wanted[expert], SILENT) / max(found[expert], SILENT))
