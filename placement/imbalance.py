"""The imbalance of a placement, per layer: the maximum load over the load of an even share.

Layers run one after another, each as long as its most loaded GPU, so the step time follows the mean over layers.
Ceilings apply to this mean.
"""

from dataclasses import dataclass

from placement.arrays import Floats, Ints
from placement.dispatch import Dispatch, gpu_loads
from placement.layout import Layout


@dataclass(frozen=True, eq=False)
class Imbalance:
    """1 is even.  With different speeds, a GPU's load counts by its time."""

    per_layer: Floats

    @property
    def mean(self) -> float:
        return float(self.per_layer.mean())


def imbalance(expert_of_slot: Ints, tokens: Floats, *, layout: Layout, rule: Dispatch = Dispatch.EQUAL) -> Imbalance:
    """The imbalance of a placement [layers, slots] under loads [layers, experts]."""
    loads = gpu_loads(expert_of_slot, tokens, layout=layout, rule=rule)
    even = tokens.sum(axis=1, keepdims=True) * layout.shares
    return Imbalance((loads / even).max(axis=1))
