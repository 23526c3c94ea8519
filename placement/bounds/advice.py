"""The effect of more slots on the bound, and their cost in memory.

Every GPU gets one more slot per step, because engines need equal slots.  A slot holds one expert of every layer, so n
more slots cost n x layers x expert_bytes on each GPU.
"""

from dataclasses import dataclass, replace

import numpy as np

from fleet.documents import RuleError
from placement.arrays import MAX_SLOTS, Floats, Ints
from placement.bounds.lower_bound import lower_bound
from placement.dispatch import Dispatch
from placement.layout import Layout

TARGET = 1.01
MAX_STEPS = 8


@dataclass(frozen=True, slots=True)
class Step:
    """The bound for one number of slots."""

    slots: int  # of one layer, on all GPUs
    bound_mean: float  # over layers
    bound_max: float  # of the worst layer
    layers_above: int  # layers with a bound above the target
    extra_bytes_per_gpu: int  # for all layers, beyond the present slots


@dataclass(frozen=True, eq=False)
class Advice:
    """Steps from the present slots until every layer's bound meets the target or the steps end."""

    target: float
    steps: tuple[Step, ...]
    slots_of_layer: Ints  # [layers]: the fewest with a bound that meets the target, 0 where no step does

    @property
    def is_needed(self) -> bool:
        """Whether the present slots keep the mean bound above the target."""
        return self.steps[0].bound_mean > self.target

    @property
    def enough(self) -> Step | None:
        """The first step whose mean bound meets the target."""
        return next((step for step in self.steps if step.bound_mean <= self.target), None)


def redundancy_advice(
    tokens: Floats,
    *,
    layout: Layout,
    expert_bytes: int,
    rule: Dispatch = Dispatch.EQUAL,
    target: float = TARGET,
    most_steps: int = MAX_STEPS,
) -> Advice:
    """Advice for loads [layers, experts]; `expert_bytes`: the weights of one expert of one layer."""
    RuleError.raise_for(() if target >= 1 else [(("target",), f"must be at least 1, got {target:g}")])
    layers, experts = tokens.shape
    enough = np.zeros(layers, dtype=np.int64)
    steps: list[Step] = []
    for more in range(most_steps + 1):
        larger = replace(layout, slots_of_gpu=layout.slots_of_gpu + more)
        if more and (larger.slots > MAX_SLOTS or int(larger.slots_of_gpu.max()) > experts):
            break
        bounds = lower_bound(tokens, layout=larger, rule=rule)
        met = bounds <= target
        enough[met & (enough == 0)] = larger.slots
        steps.append(
            Step(
                slots=larger.slots,
                bound_mean=float(bounds.mean()),
                bound_max=float(bounds.max()),
                layers_above=int((~met).sum()),
                extra_bytes_per_gpu=more * layers * expert_bytes,
            )
        )
        if met.all():
            break
    return Advice(target=target, steps=tuple(steps), slots_of_layer=enough)
