"""Placement files: they match golden files, satisfy the rules of the engines, and read back unchanged."""

import json
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.documents import RuleError
from fleet.errors import DocumentError
from fleetwright.engines.placement_file import MapShape, parse
from placement.arrays import Ints
from placement.formats import Engine, read_loaded, read_loads
from placement.formats.engine_writers import WRITERS, EnginePlacement
from placement.formats.torch_files import read_torch
from placement.layout import Layout
from placement.loads import ExpertLoads
from tests.placement.formats.engine_rules import ascend_loads, sglang_loads, trtllm_loads
from tests.placement.formats.files import data_file

SMALL = EnginePlacement.of(
    np.array([[0, 1, 2, 0], [2, 1, 1, 0]]),
    layout=Layout.even(slots=4, gpus=2, nodes=1),
    experts=3,
    layers=(1, 2),
    hidden_layers=3,
    model="tiny",
)
GOLDEN = {
    Engine.SGLANG: '{"physical_to_logical_map": [[0, 1, 2, 0], [0, 1, 2, 0], [2, 1, 1, 0]]}\n',
    Engine.TRTLLM: (
        "num_slots: 4\ninitial_global_assignments:\n  1: [0, 1, 2, 0]\n  2: [2, 1, 1, 0]\nlayer_updates_per_iter: 0\n"
    ),
    Engine.ASCEND: (
        '{"moe_layer_count": 2, "layer_list": ['
        '{"layer_id": 0, "device_count": 2, "device_list": ['
        '{"device_id": 0, "device_expert": [0, 1]}, {"device_id": 1, "device_expert": [2, 0]}]}, '
        '{"layer_id": 1, "device_count": 2, "device_list": ['
        '{"device_id": 0, "device_expert": [2, 1]}, {"device_id": 1, "device_expert": [1, 0]}]}]}\n'
    ),
    Engine.VLLM: (
        '{"schema": "fleetwright.vllm-placement/1", "model": "tiny", "experts": 3, "gpus": 2, "layers": [1, 2], '
        '"physical_to_logical_map": [[0, 1, 2, 0], [2, 1, 1, 0]]}\n'
    ),
}


@pytest.mark.parametrize("engine", Engine)
def test_the_file_matches_the_golden_file(engine: Engine) -> None:
    assert WRITERS[engine](SMALL) == GOLDEN[engine]


@dataclass(frozen=True)
class Case:
    placed: EnginePlacement
    loads: ExpertLoads


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Models with dense layers anywhere; every expert has a slot, none twice on a GPU."""
    gpus = draw(st.sampled_from([1, 2, 4, 8]))
    experts = gpus * draw(st.integers(1, 4))
    per_gpu = draw(st.integers(experts // gpus, min(experts, experts // gpus + 2)))
    hidden_layers = draw(st.integers(1, 6))
    layers = tuple(sorted(draw(st.sets(st.integers(0, hidden_layers - 1), min_size=1))))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows = [_row(rng, experts=experts, gpus=gpus, per_gpu=per_gpu) for _ in layers]
    layout = Layout.even(slots=gpus * per_gpu, gpus=gpus, nodes=1)
    placed = EnginePlacement.of(
        np.array(rows), layout=layout, experts=experts, layers=layers, hidden_layers=hidden_layers, model="m"
    )
    tokens = rng.integers(1, 100, (len(layers), experts))
    return Case(placed, ExpertLoads.of(tokens, layers=layers, hidden_layers=hidden_layers))


def _row(rng: np.random.Generator, *, experts: int, gpus: int, per_gpu: int) -> Ints:
    """Deal out all experts, then fill the remaining slots of each GPU with others."""
    dealt = rng.permutation(experts).reshape(gpus, -1)
    rows = [np.concatenate([own, rng.permutation(np.setdiff1d(np.arange(experts), own))])[:per_gpu] for own in dealt]
    return np.concatenate(rows)


@given(cases())
def test_the_sglang_file_has_a_row_for_every_layer(case: Case) -> None:
    placed = case.placed
    rows = sglang_loads(
        WRITERS[Engine.SGLANG](placed),
        layers=placed.hidden_layers,
        experts=placed.experts,
        redundant=placed.layout.slots - placed.experts,
        ep_size=placed.layout.gpus,
    )
    assert [rows[layer] for layer in placed.layers] == placed.expert_of_slot.tolist()


@given(cases())
def test_the_trtllm_file_is_keyed_by_layer_number(case: Case) -> None:
    placed = case.placed
    text = WRITERS[Engine.TRTLLM](placed)
    rows = trtllm_loads(text, layers=list(placed.layers), experts=placed.experts, ep_size=placed.layout.gpus)
    assert rows == placed.expert_of_slot.tolist()


@given(cases())
def test_the_ascend_file_lists_moe_layers_in_order(case: Case) -> None:
    placed = case.placed
    text = WRITERS[Engine.ASCEND](placed)
    rows = ascend_loads(text, moe_layers=len(placed.layers), experts=placed.experts, ep_size=placed.layout.gpus)
    assert rows == placed.expert_of_slot.tolist()


@given(cases())
def test_the_vllm_plug_in_reads_the_file(case: Case) -> None:
    placed = case.placed
    shape = MapShape(len(placed.layers), placed.experts, placed.layout.slots, placed.layout.gpus)
    assert (parse(WRITERS[Engine.VLLM](placed).encode(), shape=shape) == placed.expert_of_slot).all()


@given(cases(), st.sampled_from(Engine))
def test_a_written_file_reads_back_as_the_loaded_placement(case: Case, engine: Engine) -> None:
    data = WRITERS[engine](case.placed).encode()
    found = read_loaded(data, name="current", loads=case.loads, layout=case.placed.layout)
    assert (found.expert_of_slot == case.placed.expert_of_slot).all()
    assert (found.layers, found.hidden_layers) == (case.placed.layers, case.placed.hidden_layers)


@pytest.mark.parametrize("engine", Engine)
def test_uneven_slots_are_refused_for_every_engine(engine: Engine) -> None:
    uneven = EnginePlacement.of(
        np.array([[0, 1, 2, 0, 1]]), layout=Layout.of(node_of_gpu=[0, 0], slots_of_gpu=[3, 2]), experts=3
    )
    with pytest.raises(RuleError, match=f"gpu_slots: must be equal on every GPU for {engine}, got 2 to 3"):
        WRITERS[engine](uneven)


def test_ascend_refuses_duplicates_on_a_device_and_other_engines_accept_them() -> None:
    repeated = EnginePlacement.of(np.array([[0, 0, 1, 2]]), layout=Layout.even(slots=4, gpus=2, nodes=1), experts=3)
    with pytest.raises(RuleError, match=r"physical_to_logical_map\[0\]: must not hold an expert twice on GPU 0"):
        WRITERS[Engine.ASCEND](repeated)
    assert json.loads(WRITERS[Engine.SGLANG](repeated)) == {"physical_to_logical_map": [[0, 0, 1, 2]]}


@pytest.mark.parametrize(
    ("rows", "layers", "hidden_layers", "message"),
    [
        ([[0, 1, 2]], (0,), 1, r"physical_to_logical_map: must be layers x 4 slots, got \(1, 3\)"),
        ([[0, 1, 1, 0]], (0,), 1, r"physical_to_logical_map\[0\]: must hold every expert, 2 is in no slot"),
        ([[0, 1, 3, 2]], (0,), 1, r"physical_to_logical_map\[0\]\[2\]: must be an expert from 0 to 2, got 3"),
        ([[0, 1, -1, 2]], (0,), 1, r"physical_to_logical_map\[0\]\[2\]: must be an expert from 0 to 2, got -1"),
        ([[0, 1, 2, 0]], (0, 1), 2, r"layers: must be one number per row \(1\), got 2"),
        ([[0, 1, 2, 0]] * 2, (2, 1), 3, "layers: must rise"),
        ([[0, 1, 2, 0]], (3,), 3, "hidden_layers: must be from 4"),
    ],
)
def test_illegal_placements_are_refused(
    rows: list[list[int]], layers: tuple[int, ...], hidden_layers: int, message: str
) -> None:
    layout = Layout.even(slots=4, gpus=2, nodes=1)
    with pytest.raises(RuleError, match=message):
        EnginePlacement.of(np.array(rows), layout=layout, experts=3, layers=layers, hidden_layers=hidden_layers)


LOADS = ExpertLoads.of(np.ones((2, 3)), layers=(1, 2), hidden_layers=3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '{"physical_to_logical_map": [[0, 1, 2, 0]]}',
            "is for another model: must have 2 MoE layers or 3 layers as the loads, got 1",
        ),
        ('{"physical_to_logical_map": [[0, 1, 2, 0], [0, 1, 2]]}', "must hold as many slots as the first"),
        ('{"physical_to_logical_map": [[0, 1, 2, 0], [0, 1, 2, 7]]}', "must be an expert from 0 to 2, got 7"),
        ('{"physical_to_logical_map": [[0, 1, 2, 0.5], [0, 1, 2, 0]]}', "must be a whole number, got '0.5'"),
        ('{"physical_to_logical_map": [[0, 1, 2], [0, 1, 2]]}', "must be layers x 4 slots"),
        ('{"physical_to_logical_map": 3}', "must be a list of layers"),
        ("num_slots: 4\ninitial_global_assignments: {1: [0, 1, 2, 0]}", "the layers of the loads, 2 is missing"),
        ('{"layer_list": [{"device_list": [{"device_expert": [0, 1]}, {}]}]}', "layer_list"),
        ('{"layer_list": [3]}', r"layer_list\[0\].device_list: must be a list of devices"),
        ('{"logical_count": []}', "must have physical_to_logical_map, initial_global_assignments or layer_list"),
        ("[]", "must be a mapping"),
    ],
)
def test_a_file_of_another_model_is_refused_by_name(text: str, message: str) -> None:
    with pytest.raises(DocumentError, match=f"^current: .*{message}"):
        read_loaded(text.encode(), name="current", loads=LOADS, layout=SMALL.layout)


def test_assignments_of_layers_without_loads_are_ignored() -> None:
    text = "initial_global_assignments: {1: [0, 1, 2, 0], 2: [2, 1, 1, 0], 3: [0, 0, 0, 0]}\nnum_slots: 4\n"
    found = read_loaded(text.encode(), name="current", loads=LOADS, layout=SMALL.layout)
    assert found.expert_of_slot.tolist() == SMALL.expert_of_slot.tolist()


def test_the_loaded_map_is_read_from_a_recording() -> None:
    data = data_file("sglang_per_token_rank0.pt")
    loads = read_loads(data, name="rank0.pt", least_tokens=1)
    found = read_loaded(data, name="rank0.pt", loads=loads, layout=Layout.even(slots=12, gpus=4, nodes=2))
    recorded = read_torch(data)["last_physical_to_logical_map"]
    assert (found.expert_of_slot == recorded[1:]).all()
