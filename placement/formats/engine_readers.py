"""The current placement of an engine, read from its file: the start for the fewest moves.

The key identifies the format: `physical_to_logical_map` of SGLang and of Fleetwright, in JSON or in a .pt file;
`last_physical_to_logical_map` of SGLang's recordings; `initial_global_assignments` of TensorRT-LLM; `layer_list` of
vllm-ascend.  None names its model, so its rows must fit the loads; of a map with a row for every layer, the rows of the
MoE layers are used.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fleet.documents import RuleError, parse_document
from placement.arrays import Ints
from placement.formats.arrays import ZIP_START
from placement.formats.counts import of_file
from placement.formats.engine_writers import EnginePlacement
from placement.formats.json_csv import decoded, nested_ints, read_json
from placement.formats.sglang_recordings import MAP as LAST_MAP
from placement.formats.torch_files import read_torch
from placement.layout import Layout
from placement.loads import ExpertLoads

MAP, ASSIGNMENTS, DEVICES = "physical_to_logical_map", "initial_global_assignments", "layer_list"


def read_loaded(data: bytes, *, name: str, loads: ExpertLoads, layout: Layout) -> EnginePlacement:
    """The placement in an engine's file, for the model of the loads."""
    with of_file(name):
        return EnginePlacement.of(
            _rows(_document(data, name), loads),
            layout=layout,
            experts=loads.experts,
            layers=loads.layers,
            hidden_layers=loads.hidden_layers,
        )


def _document(data: bytes, name: str) -> Mapping[str, Any]:
    if data.startswith(ZIP_START):
        value = read_torch(data)
    else:
        text = decoded(data)
        value = read_json(data) if text.lstrip()[:1] == "{" else parse_document(text, name=name).data
    if not isinstance(value, Mapping):
        raise RuleError([((), f"must be a mapping with {MAP}, {ASSIGNMENTS} or {DEVICES}")])
    return value


def _rows(document: Mapping[str, Any], loads: ExpertLoads) -> Ints:
    """[MoE layers, slots]."""
    if ASSIGNMENTS in document:
        return _assignments(document[ASSIGNMENTS], loads)
    if DEVICES in document:
        return _of_moe_layers(_devices(document[DEVICES]), loads, DEVICES)
    for field in (MAP, LAST_MAP):
        if field in document:
            return _of_moe_layers(_ints(document[field], field), loads, field)
    raise RuleError([((), f"must have {MAP}, {ASSIGNMENTS} or {DEVICES}, got {', '.join(document)[:200]}")])


def _ints(found: Any, field: str) -> Ints:
    if not isinstance(found, np.ndarray):
        return nested_ints(found, field=field)
    if found.dtype.kind not in "iu":
        raise RuleError([((field,), f"must be whole numbers, got {found.dtype}")])
    return found.astype(np.int64)


def _of_moe_layers(rows: Ints, loads: ExpertLoads, field: str) -> Ints:
    layers = len(loads.layers)
    if rows.ndim != 2:
        raise RuleError([((field,), f"must be layers x slots, got {rows.ndim} dimensions")])
    if len(rows) == layers:
        return rows
    if len(rows) == loads.hidden_layers:
        return rows[list(loads.layers)]
    expected = f"{layers} MoE layers" + (f" or {loads.hidden_layers} layers" if loads.hidden_layers > layers else "")
    raise RuleError([((field,), f"is for another model: must have {expected} as the loads, got {len(rows)}")])


def _assignments(found: Any, loads: ExpertLoads) -> Ints:
    """Rows by their number in the whole model; other rows, such as the draft model's, are left out."""
    given = found if isinstance(found, Mapping) else {}
    rows = {str(layer): row for layer, row in given.items()}
    missing = [layer for layer in loads.layers if str(layer) not in rows]
    if missing:
        message = f"is for another model: must have the layers of the loads, {missing[0]} is missing"
        raise RuleError([((ASSIGNMENTS,), message)])
    return nested_ints([rows[str(layer)] for layer in loads.layers], field=ASSIGNMENTS)


def _devices(found: Any) -> Ints:
    rows = []
    for at, layer in enumerate(found if isinstance(found, list) else []):
        match layer:
            case {"device_list": [*devices]} if all(isinstance(device, Mapping) for device in devices):
                rows.append([device.get("device_expert") for device in devices])
            case _:
                raise RuleError([((DEVICES, at, "device_list"), "must be a list of devices")])
    slots = nested_ints(rows, field=DEVICES)
    if slots.ndim != 3:
        raise RuleError([((DEVICES,), "must name each device's experts")])
    return np.ascontiguousarray(slots.reshape(len(slots), -1))
