"""The layout fields of documents and requests; `Layout` is the form for computation."""

from collections.abc import Iterator
from functools import cached_property
from typing import Annotated, Any, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, StringConstraints, model_validator

from fleet.documents import Frozen, RuleError, Violation
from placement.arrays import MAX_GPUS, MAX_SLOTS, Floats, Ints
from placement.layout import MAX_SPEED, MIN_SPEED, Layout

MAX_COSTED_NODES = 256
MAX_COST = 1e6

GpuCount = Annotated[int, Field(ge=1, le=MAX_GPUS)]
SlotCount = Annotated[int, Field(ge=1, le=MAX_SLOTS)]
Speed = Annotated[float, Field(ge=MIN_SPEED, le=MAX_SPEED)]
Cost = Annotated[float, Field(ge=0, le=MAX_COST)]
NodeName = Annotated[str, StringConstraints(min_length=1, max_length=200)]


class LayoutSchema(Frozen):
    """Slots on GPUs on nodes.  GPUs are numbered node by node, slots GPU by GPU."""

    slots: SlotCount = Field(description="Of one layer, on all GPUs together: experts and redundant copies.")
    gpus: GpuCount
    nodes: GpuCount
    gpu_slots: tuple[SlotCount, ...] | None = Field(
        default=None, max_length=MAX_GPUS, description="Slots of each GPU where memories differ; null: all equal."
    )
    gpu_speeds: tuple[Speed, ...] | None = Field(
        default=None, max_length=MAX_GPUS, description="Relative speed of each GPU; null: all equal."
    )
    node_gpus: tuple[GpuCount, ...] | None = Field(
        default=None, max_length=MAX_GPUS, description="GPUs of each node where they differ; null: all equal."
    )
    node_names: tuple[NodeName, ...] | None = Field(default=None, max_length=MAX_GPUS)
    node_costs: tuple[Annotated[tuple[Cost, ...], Field(max_length=MAX_COSTED_NODES)], ...] | None = Field(
        default=None,
        max_length=MAX_COSTED_NODES,
        description="[nodes][nodes]: cost of a byte between two nodes, 0 within a node; null: 1 each.",
    )

    @cached_property
    def layout(self) -> Layout:
        RuleError.raise_for(_sum_violations(self))
        slots = self.slots if self.gpu_slots is None else self.gpus
        nodes = self.nodes if self.node_gpus is None else 1
        even = Layout.even(slots=slots, gpus=self.gpus, nodes=nodes, speeds=self.gpu_speeds)
        if self.gpu_slots is None and self.node_gpus is None:
            return even
        return Layout.of(
            node_of_gpu=(even.node_of_gpu if self.node_gpus is None else _numbers(self.node_gpus)).tolist(),
            slots_of_gpu=even.slots_of_gpu.tolist() if self.gpu_slots is None else self.gpu_slots,
            speeds=self.gpu_speeds,
        )

    @cached_property
    def costs(self) -> Floats | None:
        """[nodes, nodes]."""
        return None if self.node_costs is None else np.array(self.node_costs, dtype=np.float64)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        _ = self.layout
        RuleError.raise_for(_node_violations(self))
        return self


def fields_of(layout: Layout, *, node_names: tuple[str, ...] | None, node_costs: Floats | None) -> dict[str, Any]:
    """The fields of a schema for a layout."""
    slots, speeds, node_gpus = layout.slots_of_gpu, layout.speeds, np.bincount(layout.node_of_gpu)
    return {
        "slots": layout.slots,
        "gpus": layout.gpus,
        "nodes": layout.nodes,
        "gpu_slots": None if np.ptp(slots) == 0 else nested_tuples(slots),
        "gpu_speeds": None if np.ptp(speeds) == 0 else nested_tuples(speeds),
        "node_gpus": None if np.ptp(node_gpus) == 0 else nested_tuples(node_gpus),
        "node_names": node_names,
        "node_costs": None if node_costs is None else nested_tuples(node_costs),
    }


def nested_tuples(values: npt.NDArray[Any]) -> Any:
    if values.ndim == 1:
        return tuple(values.tolist())
    return tuple(nested_tuples(row) for row in values)


def _numbers(counts: tuple[int, ...]) -> Ints:
    """[GPUs]: the node of each."""
    return np.repeat(np.arange(len(counts)), counts)


def _sum_violations(shape: LayoutSchema) -> Iterator[Violation]:
    if shape.gpu_slots is not None and sum(shape.gpu_slots) != shape.slots:
        yield ("slots",), f"must be the sum of gpu_slots ({sum(shape.gpu_slots)}), got {shape.slots}"
    if shape.node_gpus is not None and len(shape.node_gpus) != shape.nodes:
        yield ("node_gpus",), f"must be one number per node ({shape.nodes}), got {len(shape.node_gpus)}"
    elif shape.node_gpus is not None and sum(shape.node_gpus) != shape.gpus:
        yield ("gpus",), f"must be the sum of node_gpus ({sum(shape.node_gpus)}), got {shape.gpus}"


def _node_violations(shape: LayoutSchema) -> Iterator[Violation]:
    nodes = shape.nodes
    if shape.node_names is not None and len(shape.node_names) != nodes:
        yield ("node_names",), f"must be one name per node ({nodes}), got {len(shape.node_names)}"
    if shape.node_costs is None:
        return
    if {len(shape.node_costs), *map(len, shape.node_costs)} != {nodes}:
        yield ("node_costs",), f"must be a square of {nodes} x {nodes} numbers, one row per node"
        return
    for node, row in enumerate(shape.node_costs):
        if row[node] != 0:
            yield ("node_costs", node, node), f"must be 0, from a node to itself, got {row[node]:g}"
        for other, cost in enumerate(row):
            if other != node and cost == 0:
                yield ("node_costs", node, other), f"must be above 0 and at most {MAX_COST:g}, got 0"
