"""Builds the layout from options: numbers of GPUs and nodes, or nodes of a topology; files per GPU; memory."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import numpy as np
import typer
from pydantic import ValidationError

from api.cli.common.files import read_document, read_file
from fleet.documents import RuleError, Violation, validation_problems
from fleet.errors import DocumentError, Problem
from fleet.models import ModelArchitecture
from placement.layout import MAX_EXPERT_BYTES, slots_within
from placement.layout_schema import LayoutSchema
from placement.loads import ExpertLoads

if TYPE_CHECKING:  # only with named nodes
    from placement.expert_group import ExpertGroup, Figure

NO_LIMIT_BYTES = 1  # per expert, where no size is given


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutOptions:
    slots: Annotated[
        int, typer.Option(metavar="S", help="Slots of one layer on all GPUs: experts and redundant copies.")
    ]
    gpus: Annotated[
        int | None, typer.Option(metavar="G", help="GPUs that share the experts: the expert-parallel size.")
    ] = None
    nodes: Annotated[
        int | None, typer.Option(metavar="N", help="Nodes of the GPUs, which are numbered node by node.")
    ] = None
    topology: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Instead of --gpus and --nodes: the topology of the --on nodes.")
    ] = None
    on: Annotated[
        list[str] | None, typer.Option(metavar="NODE", help="A node of the topology that takes part; repeat for each.")
    ] = None
    gpu_speeds: Annotated[Path | None, typer.Option(metavar="FILE", help="JSON list: relative speed per GPU.")] = None
    gpu_slots: Annotated[Path | None, typer.Option(metavar="FILE", help="JSON list: slots per GPU, if uneven.")] = None
    gpu_memory: Annotated[
        Path | None, typer.Option(metavar="FILE", help="JSON list: GB for experts per GPU, which limits its slots.")
    ] = None
    memory_share: Annotated[
        float | None, typer.Option(metavar="Q", help="With --topology: the share of each GPU's memory for experts.")
    ] = None
    expert_bytes: Annotated[
        int | None,
        typer.Option(
            min=1, max=MAX_EXPERT_BYTES, metavar="B", help="Weights of one expert in one layer; else --model's in FP8."
        ),
    ] = None
    speed_by: Annotated[
        str, typer.Option(metavar="FIGURE", help="With --topology, the figure for speed: bandwidth, bf16, fp8, ...")
    ] = "bandwidth"
    gpu_types: Annotated[
        Path | None, typer.Option(metavar="FILE", help="GPU catalogue that extends the built-in one.")
    ] = None

    def shape(self, loads: ExpertLoads, model: ModelArchitecture | None) -> LayoutSchema:
        """Return the checked layout.  RuleError names the option, or the field of a layout."""
        expert_bytes = self.expert_bytes or (None if model is None else model.expert_parameters)
        RuleError.raise_for(_violations(self, expert_bytes))
        if self.topology is not None:
            return _shape(_of_group(self._group(self.topology, loads, expert_bytes or NO_LIMIT_BYTES)))
        given: dict[str, Any] = {"slots": self.slots, "gpus": self.gpus, "nodes": self.nodes}
        for field in ("gpu_speeds", "gpu_slots"):
            if (path := getattr(self, field)) is not None:
                given[field] = list_in(path)
        if self.gpu_memory is not None and expert_bytes is not None:
            given["gpu_slots"] = _slots_in_memory(self, loads, expert_bytes)
        return _shape(given)

    def _group(self, topology: Path, loads: ExpertLoads, expert_bytes: int) -> "ExpertGroup":
        from fleet.gpus import GpuCatalogue, builtin_gpus  # noqa: PLC0415 - only for whoever names nodes
        from fleet.topology import Topology  # noqa: PLC0415
        from placement.expert_group import ExpertMemory, expert_group  # noqa: PLC0415

        memory = ExpertMemory(
            experts=loads.experts,
            layers=len(loads.layers),
            expert_bytes=expert_bytes,
            memory_share=1.0 if self.memory_share is None else self.memory_share,
        )
        gpus = builtin_gpus()
        if self.gpu_types is not None:
            gpus = gpus.overlaid(read_file(self.gpu_types, GpuCatalogue))
        index = read_file(topology, Topology).index
        figure = cast("Figure", self.speed_by)  # the group checks it: a GPU type may lack the figure
        return expert_group(index, self.on or (), catalogue=gpus, memory=memory, slots=self.slots, figure=figure)


def list_in(path: Path) -> list[Any]:
    """Read a JSON file with one entry per GPU."""
    found = read_document(path)
    if not isinstance(found.data, list):
        raise DocumentError(name=found.name, problems=[Problem("", "expected a JSON list, one number per GPU")])
    return found.data


def _violations(options: LayoutOptions, expert_bytes: int | None) -> Iterator[Violation]:
    if options.topology is None:
        for field in ("gpus", "nodes"):
            if getattr(options, field) is None:
                yield (field,), "must be given, or --topology with --on"
        for field, given in (("on", options.on), ("memory_share", options.memory_share is not None)):
            if given:
                yield (field,), "must go with --topology"
    else:
        for field in ("gpus", "nodes", "gpu_speeds", "gpu_slots", "gpu_memory"):
            if getattr(options, field) is not None:
                yield (field,), "must not go with --topology, which gives it"
        if not options.on:
            yield ("on",), "must name at least one node of --topology"
    limited = [field for field in ("memory_share", "gpu_memory") if getattr(options, field) is not None]
    if limited and expert_bytes is None:
        yield (limited[0],), "needs --model or --expert-bytes"
    if options.gpu_memory is not None and options.gpu_slots is not None:
        yield ("gpu_slots",), "must not go with --gpu-memory, which decides it"


def _slots_in_memory(options: LayoutOptions, loads: ExpertLoads, expert_bytes: int) -> tuple[int, ...]:
    path = options.gpu_memory
    memory_gb = [] if path is None else list_in(path)
    if len(memory_gb) != options.gpus:
        raise RuleError([(("gpu_memory",), f"must be one number per GPU ({options.gpus}), got {len(memory_gb)}")])
    for gpu, gb in enumerate(memory_gb):
        if type(gb) not in {int, float}:
            raise RuleError([(("gpu_memory", gpu), f"must be a number of GB, got {str(gb)[:80]!r}")])
    return slots_within(
        memory_gb, options.slots, experts=loads.experts, layers=len(loads.layers), expert_bytes=expert_bytes
    )


def _of_group(group: "ExpertGroup") -> dict[str, Any]:
    layout = group.layout
    return {
        "slots": layout.slots,
        "gpus": layout.gpus,
        "nodes": layout.nodes,
        "gpu_slots": None if np.ptp(layout.slots_of_gpu) == 0 else layout.slots_of_gpu.tolist(),
        "gpu_speeds": None if np.ptp(layout.speeds) == 0 else layout.speeds.tolist(),
        "node_gpus": np.bincount(layout.node_of_gpu).tolist(),
        "node_names": group.nodes,
        "node_costs": group.node_costs.tolist(),
    }


def _shape(given: dict[str, Any]) -> LayoutSchema:
    try:
        return LayoutSchema.model_validate(given)
    except ValidationError as error:
        raise RuleError(validation_problems(error)) from error
