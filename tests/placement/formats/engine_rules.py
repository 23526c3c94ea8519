"""The assertions of each engine's loader, restated from its source, as a check of our files.

Each function takes the text of the file and the parameters of the engine, fails where the engine fails, and returns
[layers][slots] of the requested layers.
"""

import json
from typing import Any

import yaml

Rows = list[list[int]]


def sglang_loads(text: str, *, layers: int, experts: int, redundant: int, ep_size: int) -> Rows:
    """SGLang 0.5.23: `compute_initial_expert_location_metadata`, `init_by_mapping`, `_init_common` and their maps."""
    document = json.loads(text)
    assert "physical_to_logical_map" in document

    def init_by_mapping(*, physical_to_logical_map: Rows) -> Rows:  # any other key raises TypeError in SGLang too
        return physical_to_logical_map

    rows = init_by_mapping(**document)
    slots = experts + redundant
    assert slots % ep_size == 0
    assert len(rows) == layers
    for row in rows:
        assert len(row) == slots
        slots_of_expert: Rows = [[] for _ in range(experts)]
        for slot, expert in enumerate(row):
            assert type(expert) is int
            slots_of_expert[expert].append(slot)
        assert all(slots_of_expert)  # an expert without a slot is -1 in the dispatch map, and SGLang asserts against -1
    return rows


def trtllm_loads(text: str, *, layers: list[int], experts: int, ep_size: int) -> Rows:
    """TensorRT-LLM: `MoeLoadBalancerConfig` (fields, `setup`, assignments) and the assertions of its MoE module."""
    document: dict[str, Any] = yaml.safe_load(text)
    assert document.keys() <= {"num_slots", "initial_global_assignments", "layer_updates_per_iter"}
    num_slots, assignments = document["num_slots"], document["initial_global_assignments"]
    assert type(num_slots) is int
    assert num_slots % ep_size == 0
    assert num_slots >= experts
    assert type(document["layer_updates_per_iter"]) is int
    for layer in layers:
        assert layer in assignments
        assert isinstance(assignments[layer], list)
        assert len(assignments[layer]) == num_slots
        assert set(assignments[layer]) == set(range(experts))
    return [assignments[layer] for layer in layers]


def ascend_loads(text: str, *, moe_layers: int, experts: int, ep_size: int) -> Rows:
    """vllm-ascend: `expert_file_to_tensor` and `init_eplb_config`, for each MoE layer by its number."""
    document = json.loads(text)
    rows = []
    assert document["moe_layer_count"] == moe_layers
    for layer in range(moe_layers):
        devices = [device["device_expert"] for device in document["layer_list"][layer]["device_list"]]
        assert len({len(device) for device in devices}) == 1  # rows of unequal length make no tensor
        assert document["layer_list"][layer]["device_count"] == len(devices) == ep_size
        found: set[int] = set()
        for device in devices:
            place_of_expert = {expert: place for place, expert in enumerate(device)}
            assert len(place_of_expert) == len(device)  # the later slot would overwrite the earlier one
            assert place_of_expert.keys() <= set(range(experts))
            found |= place_of_expert.keys()
        assert len(found) == experts
        rows.append([expert for device in devices for expert in device])
    return rows
