"""Small random problems of traffic between nodes."""

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from placement.arrays import Floats, Ints
from placement.layout import Layout
from placement.token_trace import TokenTrace


@dataclass(frozen=True, eq=False)
class Instance:
    """Loads, tokens, and a random placement of them."""

    layout: Layout
    tokens: Floats  # [layers, experts]
    trace: TokenTrace
    placement: Ints  # [layers, slots]


def any_placement(rng: np.random.Generator, *, layers: int, experts: int, layout: Layout) -> Ints:
    """Every expert at least once, none twice on a GPU."""
    return np.stack([_row(rng, experts, layout) for _ in range(layers)])


def _row(rng: np.random.Generator, experts: int, layout: Layout) -> Ints:
    """Deal all experts in cyclic order, so that no GPU gets one twice, then permute the GPUs."""
    order = rng.permutation(experts)
    dealt = np.resize(order, layout.slots).reshape(layout.gpus, -1)
    row: Ints = rng.permutation(dealt, axis=0).ravel().astype(np.int64)
    return row


def instance(
    seed: int,
    *,
    nodes: int = 2,
    gpus_per_node: int = 2,
    slots_per_gpu: int = 3,
    experts: int = 8,
    active: int = 3,
    layers: int = 2,
    count: int = 40,
) -> Instance:
    """Skewed loads, and tokens that follow them."""
    rng = np.random.default_rng(seed)
    gpus = nodes * gpus_per_node
    layout = Layout.even(slots=gpus * slots_per_gpu, gpus=gpus, nodes=nodes)
    weights = rng.exponential(size=(layers, experts)) + 0.05
    noise = rng.gumbel(size=(count, layers, experts)) + np.log(weights)
    trace = TokenTrace.of(np.argsort(-noise, axis=2)[:, :, :active], experts_per_layer=experts)
    placement = any_placement(rng, layers=layers, experts=experts, layout=layout)
    return Instance(layout, trace.loads() + 1.0, trace, placement)


@st.composite
def instances(draw: st.DrawFn) -> Instance:
    """Instances of many shapes, all with room for every expert."""
    nodes, gpus_per_node = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    slots_per_gpu = draw(st.integers(2, 4))
    slots = nodes * gpus_per_node * slots_per_gpu
    experts = draw(st.integers(slots_per_gpu, slots))
    return instance(
        draw(st.integers(0, 10_000)),
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        slots_per_gpu=slots_per_gpu,
        experts=experts,
        active=draw(st.integers(1, min(3, experts))),
    )
