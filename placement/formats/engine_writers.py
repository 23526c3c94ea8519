"""Placement files of engines, exact to the field: docs/reference/engine-files.md has the formats and their sources.

All engines give each rank the same number of consecutive slots, so a placement with uneven slots is refused.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from fleet.documents import RuleError, Violation
from placement.arrays import Ints
from placement.document import Placement
from placement.layout import Layout
from placement.loads import layer_violations
from placement.validation import contiguous, missing_violations

VLLM_SCHEMA = "fleetwright.vllm-placement/1"


class Engine(StrEnum):
    """The engine of a file."""

    SGLANG = "sglang"
    VLLM = "vllm"
    TRTLLM = "trtllm"
    ASCEND = "ascend"


@dataclass(frozen=True, eq=False)
class EnginePlacement:
    """The expert in each slot of a model's MoE layers.  Create with `of`, which checks the values."""

    expert_of_slot: Ints  # [layers, slots], of MoE layers
    layout: Layout
    experts: int  # of one layer
    layers: tuple[int, ...]  # each row's number in the whole model, dense layers included
    hidden_layers: int  # of the whole model
    model: str | None = None

    @classmethod
    def of(
        cls,
        expert_of_slot: Ints,
        *,
        layout: Layout,
        experts: int,
        layers: tuple[int, ...] | None = None,
        hidden_layers: int | None = None,
        model: str | None = None,
    ) -> "EnginePlacement":
        """Without numbers all layers are MoE layers.  An expert may be twice on one GPU, as in engines' own maps."""
        slots = np.ascontiguousarray(expert_of_slot, dtype=np.int64)
        numbers = tuple(range(len(slots))) if layers is None else layers
        model_layers = (max(numbers, default=0) + 1) if hidden_layers is None else hidden_layers
        placed = cls(slots, layout, experts, numbers, model_layers, model)
        RuleError.raise_for(_violations(placed))
        return placed


def sglang_json(placed: EnginePlacement) -> str:
    """For `--init-expert-location`: a row for each layer; a dense layer's row is not used but must be valid."""
    rows = contiguous(layers=placed.hidden_layers, experts=placed.experts, layout=placed.layout)
    rows[list(placed.layers)] = _even(placed, Engine.SGLANG)
    return json.dumps({"physical_to_logical_map": rows.tolist()}) + "\n"


def trtllm_yaml(placed: EnginePlacement) -> str:
    """For `moe_config.load_balancer`; without updates the placement stays."""
    rows = _even(placed, Engine.TRTLLM).tolist()
    assignments = [f"  {layer}: {json.dumps(row)}" for layer, row in zip(placed.layers, rows, strict=True)]
    lines = [
        f"num_slots: {placed.layout.slots}",
        "initial_global_assignments:",
        *assignments,
        "layer_updates_per_iter: 0",
    ]
    return "\n".join(lines) + "\n"


def ascend_json(placed: EnginePlacement) -> str:
    """For `eplb_config.expert_map_path`; its layers are counted from the first MoE layer.

    The engine stores an expert's position on a device, so a second copy there would replace the first.
    """
    by_device = _even(placed, Engine.ASCEND).reshape(len(placed.layers), placed.layout.gpus, -1)
    RuleError.raise_for(_twice_on_device_violations(by_device))
    layer_list = [
        {
            "layer_id": at,
            "device_count": placed.layout.gpus,
            "device_list": [
                {"device_id": device, "device_expert": experts.tolist()} for device, experts in enumerate(devices)
            ],
        }
        for at, devices in enumerate(by_device)
    ]
    return json.dumps({"moe_layer_count": len(layer_list), "layer_list": layer_list}) + "\n"


def vllm_json(placed: EnginePlacement) -> str:
    """For the plug-in `fleetwright.engines.vllm_plugin`; the engine counts MoE layers only."""
    document = {
        "schema": VLLM_SCHEMA,
        "model": placed.model,
        "experts": placed.experts,
        "gpus": placed.layout.gpus,
        "layers": placed.layers,
        "physical_to_logical_map": _even(placed, Engine.VLLM).tolist(),
    }
    return json.dumps(document) + "\n"


WRITERS: Mapping[Engine, Callable[[EnginePlacement], str]] = {
    Engine.SGLANG: sglang_json,
    Engine.VLLM: vllm_json,
    Engine.TRTLLM: trtllm_yaml,
    Engine.ASCEND: ascend_json,
}


def export_placement(placement: Placement, engine: Engine) -> str:
    """The text of the file that an engine loads; RuleError where the engine cannot load this placement."""
    placed = EnginePlacement.of(
        placement.expert_of_slot,
        layout=placement.layout,
        experts=placement.experts,
        layers=placement.layers,
        hidden_layers=placement.hidden_layers,
        model=placement.model,
    )
    return WRITERS[engine](placed)


def _even(placed: EnginePlacement, engine: Engine) -> Ints:
    """The map, of a layout that the engine can load."""
    slots = placed.layout.slots_of_gpu
    if slots.min() != slots.max():
        message = f"must be equal on every GPU for {engine}, got {slots.min()} to {slots.max()}"
        raise RuleError([(("gpu_slots",), message)])
    return placed.expert_of_slot


def _violations(placed: EnginePlacement) -> Iterator[Violation]:
    field = ("physical_to_logical_map",)
    shape, slots = placed.expert_of_slot.shape, placed.layout.slots
    if len(shape) != 2 or not shape[0] or shape[1] != slots:
        yield field, f"must be layers x {slots} slots, got {shape}"
        return
    yield from layer_violations(placed.layers, placed.hidden_layers, rows=shape[0])
    if not 1 <= placed.experts <= slots:
        yield ("experts",), f"must be from 1 to the number of slots ({slots}), got {placed.experts}"
        return
    wrong = (placed.expert_of_slot < 0) | (placed.expert_of_slot >= placed.experts)
    if wrong.any():
        row, slot = (int(at) for at in np.argwhere(wrong)[0])
        got = placed.expert_of_slot[row, slot]
        yield (*field, row, slot), f"must be an expert from 0 to {placed.experts - 1}, got {got}"
        return
    yield from missing_violations(placed.expert_of_slot, placed.experts)


def _twice_on_device_violations(by_device: Ints) -> Iterator[Violation]:
    ordered = np.sort(by_device, axis=2)
    twice = (ordered[:, :, 1:] == ordered[:, :, :-1]).any(axis=2)
    if twice.any():
        row, device = (int(at) for at in np.argwhere(twice)[0])
        yield ("physical_to_logical_map", row), f"must not hold an expert twice on GPU {device} for {Engine.ASCEND}"
