"""How uneven a placement is: the fullest GPU over what it would carry were all equally busy, layer by layer.

Layers run one after another, each as long as its busiest GPU, so the mean over layers is what a step's time follows; it
is what ceilings are stated for.
"""

from dataclasses import dataclass

from placement.arrays import Floats, Ints
from placement.dispatch import Dispatch, gpu_loads
from placement.layout import Layout


@dataclass(frozen=True, eq=False)
class Imbalance:
    """1 is even.  With GPUs of different speeds a GPU's load counts by the time it takes."""

    per_layer: Floats

    @property
    def mean(self) -> float:
        """Over the layers."""
        return float(self.per_layer.mean())

    @property
    def max(self) -> float:
        """Of the worst layer."""
        return float(self.per_layer.max())


def imbalance(expert_of_slot: Ints, tokens: Floats, *, layout: Layout, rule: Dispatch = Dispatch.EQUAL) -> Imbalance:
    """Of a placement [layers, slots] under loads [layers, experts]."""
    loads = gpu_loads(expert_of_slot, tokens, layout=layout, rule=rule)
    even = tokens.sum(axis=1, keepdims=True) * layout.shares
    return Imbalance((loads / even).max(axis=1))
