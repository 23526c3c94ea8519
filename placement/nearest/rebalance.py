"""All layers balanced with a fixed load per copy: as placed and packed again, whichever is better.

Compiled on import: import it late.
"""

from numba import float64, int64

from fleet.numba_cache import jit_entry, jit_inner
from placement.arrays import Floats, Ints
from placement.nearest.repacking import repacked
from placement.nearest.search import even_out
from placement.nearest.state import Instance, Layer, empty_layer, fullest, put


@jit_inner
def _given(instance: Instance, start: Ints, weights: Floats) -> Layer:
    layer = empty_layer(instance)
    for slot in range(len(start)):
        put(layer, start[slot], slot)
        layer.weights[slot] = weights[slot]
        layer.loads[instance.gpu_of_slot[slot]] += weights[slot]
    return layer


@jit_inner
def _busiest(layer: Layer, instance: Instance) -> float:
    gpu = fullest(layer, instance)
    return float(layer.loads[gpu] / instance.even[gpu])


@jit_entry(
    int64[:, ::1](
        float64[:, ::1],
        int64[:, ::1],
        float64[:, ::1],
        int64[::1],
        int64[::1],
        int64[::1],
        float64[::1],
        float64,
        int64,
    )
)
def rebalance(  # noqa: PLR0917 - compiled code takes no keywords
    tokens: Floats,
    start: Ints,
    weights: Floats,
    gpu_of_slot: Ints,
    node_of_gpu: Ints,
    first_slot: Ints,
    shares: Floats,
    tolerance: float,
    rounds: int,
) -> Ints:
    """[layers, slots], from a placement with the load of each copy; layers without tokens stay unchanged."""
    found = start.copy()
    for row in range(len(tokens)):
        total = tokens[row].sum()
        if total == 0:
            continue
        roams = False  # the draws for a copy are valid while it stays on its node
        instance = Instance(gpu_of_slot, node_of_gpu, first_slot, roams, tokens[row], shares * total)
        layer = _given(instance, start[row], weights[row])
        other = repacked(layer, instance)
        even_out(layer, instance, tolerance, rounds)
        even_out(other, instance, tolerance, rounds)
        better = other if _busiest(other, instance) < _busiest(layer, instance) else layer
        for slot in range(len(gpu_of_slot)):  # one by one: it compiles faster than a copy of arrays
            found[row, slot] = better.expert_of_slot[slot]
    return found
