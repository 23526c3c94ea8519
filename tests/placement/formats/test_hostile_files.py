"""Hostile files: pickles that call functions, archives that unpack without end, tensors beyond their storage."""

import contextlib
import io
import os
import pickle
import pickletools
import struct
import zipfile
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.documents import RuleError
from fleet.errors import DocumentError
from placement.formats import read_loads
from placement.formats.arrays import MAX_UNPACKED_BYTES
from placement.formats.torch_files import read_torch
from tests.placement.formats.files import data_file, npz, torch_zip


class Runs:
    """Calls the given function when Python unpickles it."""

    def __init__(self, called: Any, *arguments: Any) -> None:
        self._call = (called, arguments)

    def __reduce__(self) -> Any:
        return self._call


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("called", [os.mkdir, eval, getattr, pickle.loads, __import__])
def test_a_pickle_that_calls_functions_is_refused_without_a_call(protocol: int, called: Any, tmp_path: Any) -> None:
    made = tmp_path / "made"
    data = pickle.dumps({"logical_count": Runs(called, str(made), "x")}, protocol=protocol)
    with pytest.raises(DocumentError, match="which no file of plain values needs"):
        read_loads(torch_zip(data), name="evil.pt")
    assert not made.exists()


def test_the_same_pickle_runs_in_the_standard_reader(tmp_path: Any) -> None:
    made = tmp_path / "made"
    pickle.loads(pickle.dumps(Runs(os.mkdir, str(made))))  # noqa: S301 - it shows that the test above tests something
    assert made.is_dir()


TENSOR = b"ctorch._utils\n_rebuild_tensor_v2\n"
STORAGE = b"(X\x07\x00\x00\x00storagectorch\nIntStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x04tQ"


def tensor(*, offset: bytes = b"K\x00", size: bytes = b"K\x02K\x02\x86", stride: bytes = b"K\x02K\x01\x86") -> bytes:
    """A .pt file of one tensor over a storage of four numbers."""
    body = b"\x80\x02" + TENSOR + b"(" + STORAGE + offset + size + stride + b"\x89}tR."
    return torch_zip(body, _0=struct.pack("<4i", 1, 2, 3, 4))


def test_the_unmodified_tensor_is_readable() -> None:
    assert read_torch(tensor()).tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (tensor(offset=b"K\x01"), "holds a tensor that reaches to 4 in a storage of 4"),
        (tensor(size=b"K\x03K\x02\x86"), "holds a tensor that reaches to 5"),
        (tensor(stride=b"J\xff\xff\xff\xffK\x01\x86"), "is not made of whole numbers from 0 up"),
        (tensor(offset=b"J\xff\xff\xff\xff"), "is not made of whole numbers from 0 up"),
        (tensor(size=b"X\x01\x00\x00\x002K\x02\x86"), "is not made of whole numbers from 0 up"),
        (tensor(size=b"K\x02\x85"), "is not made of whole numbers from 0 up"),
        (
            tensor(size=b"\x8a\x05\x00\x00\x00\x00\x7fK\x01\x86", stride=b"K\x00K\x00\x86"),
            "must hold tensors of at most",
        ),
        (torch_zip(b"\x80\x02" + STORAGE + b".", _0=b"123"), "data/0: must be 16 bytes, got 3"),
        (torch_zip(b"\x80\x02" + STORAGE + b"."), "archive/data/0: is missing from the archive"),
        (torch_zip(b"\x80\x02X\x01\x00\x00\x00aQ."), "expected the storage of a tensor"),
        (torch_zip(b"\x80\x02" + STORAGE.replace(b"IntS", b"OddS") + b".", _0=b""), "holds a OddStorage, expected one"),
        (torch_zip(b"\x80\x02" + TENSOR + b")R."), "is damaged"),
        (torch_zip(b"\x80\x02" + TENSOR + b"}b."), "holds the pickle instruction BUILD"),
        (torch_zip(b"\x80\x02K\x01"), "is damaged: it ends before its STOP instruction"),
        (torch_zip(b"\x80\x02."), "is damaged: an instruction lacks its value"),
        (torch_zip(b"\x80\x02h\x07."), "is damaged"),
        (torch_zip(b"\x80\x02t."), "is damaged: a mark is missing"),
        (torch_zip(b"\x80\x02}(K\x01u."), "is damaged"),
        (torch_zip(b"\x80\x02}(]K\x01u."), "keys are neither text nor numbers"),
        (torch_zip(b"\x80\x02K\x01K\x02a."), "is damaged: a list was expected"),
        (torch_zip(b""), "is damaged"),
    ],
)
def test_damaged_tensors_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(RuleError, match=message):
        read_torch(data)


def zip_of(method: int = zipfile.ZIP_DEFLATED, **members: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name.replace("__", "/").replace("_dot_", "."), data)
    return stream.getvalue()


def test_an_archive_that_declares_an_oversized_entry_is_not_unpacked() -> None:
    data = bytearray(zip_of(load_dot_npy=b"\0" * 1000))
    at = data.index(b"PK\x01\x02") + 24  # the unpacked size in the directory
    data[at : at + 4] = struct.pack("<I", MAX_UNPACKED_BYTES + 1)
    with pytest.raises(DocumentError, match=f"must unpack to at most {MAX_UNPACKED_BYTES:,} bytes"):
        read_loads(bytes(data), name="bomb.npz")


def test_an_archive_that_unpacks_to_more_than_declared_is_refused() -> None:
    data = bytearray(zip_of(load_dot_npy=b"\0" * 1_000_000))
    at = data.index(b"PK\x01\x02") + 24
    data[at : at + 4] = struct.pack("<I", 100)
    with pytest.raises(DocumentError, match=r"load.npy: cannot be unpacked"):
        read_loads(bytes(data), name="bomb.npz")


def test_a_declared_shape_beyond_the_limit_is_refused() -> None:
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000, 1000000), }\n"
    data = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header
    with pytest.raises(DocumentError, match="must be at most"):
        read_loads(data, name="huge.npy")


def test_arrays_of_python_objects_are_refused() -> None:
    data = npz(load=[[Runs(os.getcwd)]])
    with pytest.raises(DocumentError, match="load: must hold whole or floating-point numbers of at most 8 bytes"):
        read_loads(data, name="objects.npz")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"PK\x03\x04 and no more", "is not a whole zip archive"),
        (zip_of(zipfile.ZIP_LZMA, load_dot_npy=b"x"), "must be stored or deflated"),
        (zip_of(a__data_dot_pkl=b"", b__data_dot_pkl=b""), "expected one data.pkl, got 2"),
        ((2).to_bytes(8, "little") + b"{]", "is not valid JSON"),
        ((2).to_bytes(8, "little") + b"{}", "must hold at least one tensor"),
    ],
)
def test_archives_of_unknown_content_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(DocumentError, match=message):
        read_loads(data, name="other")


@pytest.mark.parametrize(
    "entry",
    [
        '{"dtype": "I64", "shape": [2], "data_offsets": [0, 999]}',
        '{"dtype": "I64", "shape": [2], "data_offsets": [0, 8]}',
        '{"dtype": "I64", "shape": [-2], "data_offsets": [0, 16]}',
        '{"dtype": "I64", "shape": [2], "data_offsets": [16, 0]}',
        '{"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}',
        '{"dtype": "I64", "shape": [2]}',
        "3",
    ],
)
def test_safetensors_with_offsets_past_their_bytes_are_refused(entry: str) -> None:
    header = f'{{"1_2": {entry}}}'.encode()
    with pytest.raises(DocumentError, match=r"^s: 1_2"):
        read_loads(len(header).to_bytes(8, "little") + header + b"\0" * 16, name="s")


FILES = ["sglang_stat.pt", "sglang_per_token_rank0.pt", "rank0.safetensors", "values.pt"]


@given(st.sampled_from(FILES), st.data())
def test_a_corrupted_file_is_read_or_refused(name: str, data: st.DataObject) -> None:
    content = bytearray(data_file(name))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(content)))
    for changed in (bytes(content), bytes(content[:cut])):
        try:
            read_loads(changed, name=name)
        except DocumentError as error:
            assert str(error).startswith(name)  # noqa: PT017 - both ends are allowed


INSTRUCTIONS = [opcode.code.encode("latin-1") for opcode in pickletools.opcodes]


@given(st.lists(st.sampled_from([*INSTRUCTIONS, b"\x00", b"\x01", TENSOR, STORAGE, b"ios\nsystem\n"]), max_size=30))
def test_arbitrary_pickle_instructions_give_a_value_or_are_refused(instructions: list[bytes]) -> None:
    with contextlib.suppress(RuleError):
        read_torch(torch_zip(b"\x80\x02" + b"".join(instructions) + b".", _0=b"\0" * 16))
