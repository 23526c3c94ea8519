"""All layers, one after the other, in compiled code.  Compiled on import: import it late."""

import numpy as np
from numba import float64, int64

from fleet.compiled import entry, part
from placement.arrays import Floats, Ints
from placement.nearest.construction import constructed
from placement.nearest.search import improve
from placement.nearest.shaking import given, shaken
from placement.nearest.state import Ground


@part
def _are_alike(node_of_gpu: Ints) -> bool:
    """Whether all nodes have as many GPUs: then where a copy's far GPUs are does not matter."""
    gpus = np.zeros(node_of_gpu[-1] + 1, np.int64)
    for node in node_of_gpu:
        gpus[node] += 1
    alike = True
    for node in range(1, len(gpus)):
        alike &= gpus[node] == gpus[0]
    return alike


@entry(int64[:, ::1](float64[:, ::1], int64[:, ::1], int64[::1], int64[::1], int64[::1], float64[::1], float64, int64))
def plan(  # noqa: PLR0917 - compiled code takes no keywords
    tokens: Floats,
    start: Ints,
    gpu_of_slot: Ints,
    node_of_gpu: Ints,
    first_slot: Ints,
    shares: Floats,
    tolerance: float,
    rounds: int,
) -> Ints:
    """[layers, slots]; `start` has as many rows, or none."""
    found = np.empty((len(tokens), len(gpu_of_slot)), np.int64)
    roams = _are_alike(node_of_gpu)
    for row in range(len(tokens)):
        ground = Ground(gpu_of_slot, node_of_gpu, first_slot, roams, tokens[row], shares * tokens[row].sum())
        layer = given(ground, start[row]) if len(start) > 0 else constructed(ground)
        improve(layer, ground, tolerance, rounds)
        layer = shaken(layer, ground, tolerance, rounds)
        for slot in range(len(gpu_of_slot)):  # one by one: it compiles faster than a copy of arrays
            found[row, slot] = layer.expert_of_slot[slot]
    return found
