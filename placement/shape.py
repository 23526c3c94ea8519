"""Where copies can lie, as documents and requests write it down; `Layout` is what computes with it."""

from functools import cached_property
from typing import Annotated, Self

from pydantic import Field, model_validator

from fleet.documents import Frozen, RuleError
from placement.arrays import MAX_GPUS, MAX_SLOTS
from placement.layout import MAX_SPEED, MIN_SPEED, Layout

GpuCount = Annotated[int, Field(ge=1, le=MAX_GPUS)]
SlotCount = Annotated[int, Field(ge=1, le=MAX_SLOTS)]
Speed = Annotated[float, Field(ge=MIN_SPEED, le=MAX_SPEED)]


class Shape(Frozen):
    """Slots on GPUs on nodes.  GPUs are numbered node by node, slots GPU by GPU."""

    slots: SlotCount = Field(description="Of one layer, on all GPUs together: experts and redundant copies.")
    gpus: GpuCount
    nodes: GpuCount
    gpu_slots: tuple[SlotCount, ...] | None = Field(
        default=None, max_length=MAX_GPUS, description="Slots of each GPU where memories differ; null: all alike."
    )
    gpu_speeds: tuple[Speed, ...] | None = Field(
        default=None, max_length=MAX_GPUS, description="Relative speed of each GPU; null: all alike."
    )

    @cached_property
    def layout(self) -> Layout:
        """The same for computing, checked."""
        even = Layout.even(slots=self._slots_if_even, gpus=self.gpus, nodes=self.nodes, speeds=self.gpu_speeds)
        if self.gpu_slots is None:
            return even
        return Layout.of(node_of_gpu=even.node_of_gpu.tolist(), slots_of_gpu=self.gpu_slots, speeds=self.gpu_speeds)

    @property
    def _slots_if_even(self) -> int:
        return self.slots if self.gpu_slots is None else self.gpus

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.gpu_slots is not None and sum(self.gpu_slots) != self.slots:
            flaw = f"must be the sum of gpu_slots ({sum(self.gpu_slots)}), got {self.slots}"
            raise RuleError([(("slots",), flaw)])
        _ = self.layout
        return self
