"""Plain arrays: [windows x] layers x experts as .npz, .npy, JSON and CSV, and the refused variants of each."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fleet.errors import DocumentError
from placement.formats import read_loads
from tests.placement.formats.files import npy, npz

TOKENS = hnp.arrays(
    np.float64,
    hnp.array_shapes(min_dims=2, max_dims=3, max_side=5),
    elements=st.floats(1e-6, 1e12),
)


def written(tokens: Any) -> dict[str, bytes]:
    """The same numbers in every format."""
    forms = {
        "loads.npy": npy(tokens),
        "column_order.npy": npy(np.asfortranarray(tokens)),
        "loads.npz": npz(load=tokens),
        "packed.npz": npz(compressed=True, load=tokens),
        "loads.json": json.dumps(tokens.tolist()).encode(),
        "named.json": json.dumps({"load": tokens.tolist()}).encode(),
    }
    if tokens.ndim == 2:
        forms["loads.csv"] = "\n".join(",".join(map(repr, row)) for row in tokens.tolist()).encode()
    return forms


@given(TOKENS)
def test_every_format_gives_the_same_loads(tokens: Any) -> None:
    windows = tokens if tokens.ndim == 3 else tokens[np.newaxis]
    for name, data in written(tokens).items():
        loads = read_loads(data, name=name)
        assert (loads.tokens == windows).all(), name
        assert loads.layers == tuple(range(windows.shape[1]))


@pytest.mark.parametrize(
    ("text", "layers", "tokens"),
    [
        ("1,2\n3,4\n", (0, 1), [[[1, 2], [3, 4]]]),
        ("\ufeffe0,e1\n1,2\n\n3,4\n", (0, 1), [[[1, 2], [3, 4]]]),
        ("layer,e0,e1\n3,1,2\n7,3,4\n", (3, 7), [[[1, 2], [3, 4]]]),
        ("Window, Layer,0,1\n0,3,1,2\n0,4,3,4\n9,3,5,6\n9,4,7,8\n", (3, 4), [[[1, 2], [3, 4]], [[5, 6], [7, 8]]]),
    ],
)
def test_csv_is_read_with_and_without_a_header(text: str, layers: tuple[int, ...], tokens: list[Any]) -> None:
    loads = read_loads(text.encode(), name="loads.csv")
    assert loads.layers == layers
    assert loads.tokens.tolist() == tokens


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty, expected one row of numbers per layer"),
        ("a,b\n", "must hold at least one row of numbers under its header"),
        ("1,2\n3\n", r"line 2: must hold as many cells as the first row \(2\), got 1"),
        ("1,2\n3,x\n", r"line 2\[1\]: must be a number, got 'x'"),
        ("1,2\n3,nan\n", r"loads\[1\]\[1\]: must be a finite number"),
        ("1,2\n3,-4\n", r"loads\[1\]\[1\]: must be above 0, got -4"),
        ("1,2\n3,0\n", r"loads\[1\]\[1\]: must be above 0"),
        ("window,e0\n1,2\n", "header: must start with window, layer, or with layer, or with neither"),
        ("layer,e0\n1.5,2\n", "layer: must be whole numbers from 0 up"),
        ("layer,e0\n4,2\n3,2\n", "layers: must rise from row to row"),
        ("layer,e0\n-1,2\n", "layers: must rise from row to row and start at 0"),
        ("window,layer,e0\n1,0,2\n0,0,2\n", "window: must rise from row to row"),
        ("window,layer,e0\n0,0,2\n1,1,2\n", "window.1: must hold the same layers in the same order"),
        ('1,"2\n', "is not valid CSV"),
    ],
)
def test_invalid_csv_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(DocumentError, match=f"^l.csv: {message}"):
        read_loads(text.encode(), name="l.csv")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[1, 2], [3]]", r"load\[1\]: must hold as many experts as the first \(2\), got 1"),
        ("[[[1, 2]], [[1, 2], [3, 4]]]", r"load\[1\]: must hold as many layers as the first \(1\), got 2"),
        ("[[1, 2], 3]", r"load\[1\]: must be a list of numbers"),
        ("[[], [1]]", r"load\[0\]: must be a list of numbers"),
        ("[]", "load: must be a list of layers, each a list of numbers"),
        ("[[1, NaN]]", r"loads\[0\]\[1\]: must be a finite number"),
        ("[[1, -Infinity]]", r"loads\[0\]\[1\]: must be a finite number"),
        ("[[1, null]]", r"load\[0\]\[1\]: must be a number, got 'None'"),
        ('{"weights": []}', "must have load, logical_count or routed_experts, got weights"),
        ('{"load": [[1]], "load": [[2]]}', "load: is given twice"),
        ("[[1, 2]", "is not valid JSON"),
        (f"[[{'9' * 5000}]]", "holds a whole number with too many digits"),
        ("[" * 100_000, "is nested too deeply"),
    ],
)
def test_invalid_json_is_refused_with_its_position(text: str, message: str) -> None:
    with pytest.raises(DocumentError, match=f"^l.json: {message}"):
        read_loads(text.encode(), name="l.json")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (npy([[1, np.nan]]), r"loads\[0\]\[1\]: must be a finite number"),
        (npy([[[1, 2]], [[1, -2]]]), r"loads\[1\]\[0\]\[1\]: must be above 0, got -2"),
        (npy([[1, 2], [0, 0]]), "loads.1.: must be above 0, got a layer without any load; leave dense layers out"),
        (npy([1, 2]), r"loads: must have 2 or 3 dimensions"),
        (npy([["a"]]), "must hold whole or floating-point numbers"),
        (npy([[1j]]), "must hold whole or floating-point numbers"),
        (npz(tokens=[[1]]), "must hold an array under load or trace, got tokens.npy"),
        (npy([[1, 2]])[:-3], "must hold 16 bytes for shape"),
        (npy([[1, 2]]) + b"x", "must hold 16 bytes for shape"),
        (npy([[1, 2]])[:40], "is not a whole .npy array"),
        (b"\xff\xfe1,2", "is not text in UTF-8"),
    ],
)
def test_invalid_arrays_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(DocumentError, match=f"^l: {message}"):
        read_loads(data, name="l")


def test_experts_without_tokens_can_be_given_a_minimum_count() -> None:
    assert read_loads(npy([[1.0, 0.0]]), name="l", least_tokens=0.25).total.tolist() == [[1.0, 0.25]]


SHARED = Path(__file__).parents[4] / "shared/data/placement/sglang_dsv3_expert_stats"


@pytest.mark.skipif(not SHARED.is_dir(), reason="the recordings of DeepSeek-V3 are not on this machine")
def test_the_published_recordings_have_58_moe_layers_of_61() -> None:
    for path in sorted(SHARED.glob("*.json")):
        loads = read_loads(path.read_bytes(), name=path.name)
        assert (loads.layers, loads.hidden_layers, loads.experts) == (tuple(range(3, 61)), 61, 256)
