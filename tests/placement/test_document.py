"""placement.json: documents read back unchanged, and damaged ones are refused with the position."""

import json
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from fleet.documents import dotted, validation_problems
from placement.document import Placement, placement_text
from placement.loads import ExpertLoads

ROWS = [[0, 1, 2, 3, 0, 2], [3, 2, 1, 0, 3, 1]]
SPREAD = {"mean": 1.0, "max": 1.0, "per_layer": [1.0, 1.0]}


def document(**changes: Any) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "model": "m",
        "experts": 4,
        "slots": 6,
        "gpus": 2,
        "nodes": 1,
        "layers": [1, 2],
        "hidden_layers": 3,
        "dispatch": "equal",
        "imbalance": SPREAD,
        "bound": SPREAD,
        "holds": True,
        "remote_nodes_per_token": None,
        "moved_copies": None,
        "solve_s": 0.1,
        "predictions": {
            "imbalance_by_rule": {"equal": 1.0, "nearest": 1.0},
            "before": {"what": "contiguous", "imbalance": SPREAD},
        },
        "provenance": {"version": "1", "windows": 1},
        "physical_to_logical_map": ROWS,
        "loads": [[4.0, 2.0, 2.0, 2.0], [1.0, 2.0, 1.0, 3.0]],
    } | changes


def test_a_written_placement_reads_back_unchanged() -> None:
    placement = Placement.model_validate(document())
    text = placement_text(placement)
    assert Placement.model_validate_json(text) == placement
    assert json.loads(text) == placement.model_dump(mode="json")
    assert text.splitlines()[1] == '  "schema_version": 1,'
    assert "    [0,1,2,3,0,2],\n" in text  # one layer per line


def test_the_document_defines_the_layout() -> None:
    placement = Placement.model_validate(document())
    assert placement.expert_of_slot.tolist() == ROWS
    assert placement.layout.gpu_of_slot.tolist() == [0, 0, 0, 1, 1, 1]
    assert placement.expert_loads.layers == (1, 2)
    assert not {"physical_to_logical_map", "loads"} & set(placement.summary())


def test_loads_without_layer_numbers_take_those_of_the_placement() -> None:
    placement = Placement.model_validate(document())
    bare = ExpertLoads.of(np.ones((2, 4)))
    assert placement.same_rows(bare).layers == (1, 2)
    others = ExpertLoads.of(np.ones((2, 4)), layers=(3, 4), hidden_layers=5)
    assert placement.same_rows(others) is others


@pytest.mark.parametrize(
    ("changes", "path", "text"),
    [
        ({"schema_version": 2}, "schema_version", "1"),
        ({"slots": 7}, "slots", "multiple of the number of GPUs (2), got 7"),
        ({"experts": 5}, "experts", "as in the loads (4)"),
        ({"layers": [1]}, "physical_to_logical_map", "one row per layer (1), got 2"),
        ({"layers": [2, 1]}, "layers", "must rise"),
        ({"hidden_layers": 2}, "hidden_layers", "from 3"),
        ({"physical_to_logical_map": [ROWS[0], ROWS[1][:5]]}, "physical_to_logical_map", "rows of one length"),
        ({"physical_to_logical_map": [[0, 1, 2, 2, 0, 1], ROWS[1]]}, "physical_to_logical_map[0]", "3 is in no slot"),
        ({"physical_to_logical_map": [[0, 0, 1, 2, 3, 1], ROWS[1]]}, "physical_to_logical_map[0]", "twice on one GPU"),
        ({"physical_to_logical_map": [[0, 1, 4, 2, 3, 1], ROWS[1]]}, "physical_to_logical_map", "from 0 to 3"),
        ({"loads": [[4.0, 2.0, 0.0, 2.0], [1.0] * 4]}, "loads[0][2]", "greater than 0"),
        ({"loads": [[4.0, 2.0, 2.0], [1.0] * 4]}, "loads", "rows of one length"),
        ({"gpu_slots": [2, 5]}, "slots", "must be the sum of gpu_slots (7), got 6"),
        ({"gpu_speeds": [1.0]}, "gpu_speeds", "one number per GPU (2), got 1"),
        ({"bound": SPREAD | {"per_layer": [1.0]}}, "bound.per_layer", "one number per layer (2), got 1"),
        ({"surplus": 1}, "surplus", "not a known field"),
    ],
)
def test_an_invalid_field_is_refused_with_its_path(changes: dict[str, Any], path: str, text: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Placement.model_validate_json(json.dumps(document(**changes)))
    found = {dotted(place): message for place, message in validation_problems(caught.value)}
    assert path in found, found
    assert text in found[path]
