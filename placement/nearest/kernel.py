"""The search for all layers, one after the other, in compiled code.  Compiled on import: import it late."""

from typing import NamedTuple

import numpy as np
from numba import boolean, float64, int64

from fleet.numba_cache import jit_entry, jit_inner
from placement.arrays import Floats, Ints
from placement.nearest.initial import initial_placement
from placement.nearest.node_spread import spread_copies
from placement.nearest.perturbation import busiest_of, given, searched
from placement.nearest.state import Instance, Layer, empty_layer

EFFORT = 2000  # searches times slots, per layer
HEAVIEST = (0.8, 0.65, 0.5, 0.4, 0.0)  # of a GPU's even load, for a copy; 0: split as far as slots allow
CLOSE = 0.005  # over even: a plan as near is taken


class Settings(NamedTuple):
    tolerance: float
    rounds: int
    parts: bool


@jit_inner
def _are_alike(node_of_gpu: Ints) -> bool:
    """Whether all nodes have equal numbers of GPUs: then the nodes of a copy's far GPUs do not matter."""
    gpus = np.zeros(node_of_gpu[-1] + 1, np.int64)
    for node in node_of_gpu:
        gpus[node] += 1
    alike = True
    for node in range(1, len(gpus)):
        alike &= gpus[node] == gpus[0]
    return alike


@jit_inner
def _first(instance: Instance, start: Ints, at: int, parts: bool) -> Layer:  # noqa: FBT001
    if len(start) == 0:
        return initial_placement(instance, HEAVIEST[at])
    layer = given(instance, start)
    if parts:
        spread_copies(layer, instance)
    return layer


@jit_inner
def _planned(instance: Instance, start: Ints, settings: Settings) -> Layer:
    best, least = empty_layer(instance), np.inf
    tried = 0 if len(start) == 0 else len(HEAVIEST) - 1
    for at in range(tried, len(HEAVIEST)):
        tries = EFFORT // len(instance.gpu_of_slot) + 2 if HEAVIEST[at] == 0.0 else 1
        layer = _first(instance, start, at, settings.parts)
        layer = searched(layer, instance, settings.tolerance, settings.rounds, tries)
        busiest = busiest_of(layer, instance)
        if busiest < least:
            best, least = layer, busiest
        if least <= 1.0 + CLOSE:
            break
    return best


@jit_entry(
    int64[:, ::1](
        float64[:, ::1],
        int64[:, ::1],
        int64[::1],
        int64[::1],
        int64[::1],
        float64[::1],
        float64,
        int64,
        boolean,
    )
)
def plan(  # noqa: PLR0917 - compiled code takes no keywords
    tokens: Floats,
    start: Ints,
    gpu_of_slot: Ints,
    node_of_gpu: Ints,
    first_slot: Ints,
    shares: Floats,
    tolerance: float,
    rounds: int,
    parts: bool,  # noqa: FBT001
) -> Ints:
    """[layers, slots]; `start` has as many rows, or none; copies that share a node there may be spread first."""
    found = np.empty((len(tokens), len(gpu_of_slot)), np.int64)
    roams, none, settings = _are_alike(node_of_gpu), np.empty(0, np.int64), Settings(tolerance, rounds, parts)
    for row in range(len(tokens)):
        instance = Instance(gpu_of_slot, node_of_gpu, first_slot, roams, tokens[row], shares * tokens[row].sum())
        layer = _planned(instance, start[row] if len(start) > 0 else none, settings)
        for slot in range(len(gpu_of_slot)):  # one by one: it compiles faster than a copy of arrays
            found[row, slot] = layer.expert_of_slot[slot]
    return found
