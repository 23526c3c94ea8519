"""The format of a file in the provenance of a placement."""

import numpy as np
import pytest

from placement.formats import Kind, kind_of
from tests.placement.formats.files import data_file, npy, npz

FILES: list[tuple[str, bytes, Kind]] = [
    ("loads.npz", npz(load=np.ones((2, 4))), "npz"),
    ("loads.npy", npy(np.ones((2, 4))), "npy"),
    ("routed.npy", npy(np.ones((5, 2, 2), dtype=np.uint8)), "vllm-routed-experts"),
    ("loads.json", b"[[1, 2], [3, 4]]", "json"),
    ("loads.json", b'\xef\xbb\xbf {"load": [[1, 2]]}', "json"),
    ("dump.json", b'{"logical_count": [[1, 2]]}', "sglang-recording"),
    ("responses.jsonl", b'{"choices": [{"routed_experts": ""}]}', "vllm-routed-experts"),
    ("map.json", b'{"physical_to_logical_map": [[0, 1]]}', "sglang-placement"),
    ("map.json", b'{"schema_version": 1, "physical_to_logical_map": [[0, 1]]}', "placement.json"),
    ("map.json", b'{"moe_layer_count": 1, "layer_list": []}', "ascend-placement"),
    ("map.yaml", b"num_slots: 4\ninitial_global_assignments:\n  0: [0, 1]\n", "trtllm-placement"),
    ("loads.csv", b"1,2\n3,4\n", "csv"),
]


@pytest.mark.parametrize(("name", "data", "kind"), FILES)
def test_the_content_determines_the_kind(name: str, data: bytes, kind: Kind) -> None:
    assert kind_of(data, name=name) == kind


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("rank0.safetensors", "trtllm-statistics"),
        ("rank0_raw.safetensors", "trtllm-statistics"),
        ("sglang_stat.pt", "sglang-recording"),
        ("sglang_per_token_rank0.pt", "sglang-recording"),
        ("values.pt", "pt"),
    ],
)
def test_files_of_real_libraries_are_recognised(name: str, kind: Kind) -> None:
    assert kind_of(data_file(name), name=name) == kind
