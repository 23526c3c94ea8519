"""Pickles of plain data are read as Python reads them; all others are refused before they can do anything."""

import os
import pickle
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.safe_pickle import PickleError, UnsafePickleError, read_pickle

keys = (
    st.none()
    | st.booleans()
    | st.integers(-(2**100), 2**100)
    | st.text(max_size=10)
    | st.binary(max_size=10)
    | st.floats(allow_nan=False)
)
plain = st.recursive(
    keys,
    lambda inner: (
        st.lists(inner, max_size=5) | st.lists(inner, max_size=5).map(tuple) | st.dictionaries(keys, inner, max_size=5)
    ),
    max_leaves=12,
)

# Names of modules and functions as a hostile pickle gives them; nothing here is ever called.
SYSTEM = b"cposix\nsystem\n"


class Calls:
    """Its pickle makes a folder when Python reads it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


@given(plain, st.integers(3, pickle.HIGHEST_PROTOCOL))
def test_plain_data_comes_back_as_it_was(value: Any, protocol: int) -> None:
    assert read_pickle(pickle.dumps(value, protocol=protocol)) == value


def test_protocol_2_has_no_opcode_for_bytes() -> None:
    """Python writes a call of its own codec instead; torch writes texts."""
    with pytest.raises(UnsafePickleError):
        read_pickle(pickle.dumps(b"bytes", protocol=2))


@given(plain, st.integers(2, pickle.HIGHEST_PROTOCOL), st.data())
def test_a_pickle_that_was_cut_off_is_refused(value: Any, protocol: int, data: st.DataObject) -> None:
    whole = pickle.dumps(value, protocol=protocol)
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]

    with pytest.raises(PickleError):
        read_pickle(cut)


@given(st.binary(max_size=400))
def test_any_bytes_are_plain_data_or_refused(data: bytes) -> None:
    try:
        found = read_pickle(b"\x80\x02" + data)
    except PickleError:
        return
    assert isinstance(found, str | int | float | bytes | tuple | list | dict | type(None))


@given(st.data(), plain)
def test_damaged_pickles_are_plain_data_or_refused(data: st.DataObject, value: Any) -> None:
    damaged = bytearray(pickle.dumps(value, protocol=2))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = read_pickle(bytes(damaged))
    except PickleError:
        return
    assert isinstance(found, str | int | float | bytes | tuple | list | dict | type(None))


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize(
    "wrap", [lambda it: it, lambda it: {"entries": [it]}, lambda it: ({"version": "2.10", "x": (it,)},)]
)
def test_a_pickle_that_calls_something_is_refused_and_calls_nothing(tmp_path: Path, protocol: int, wrap: Any) -> None:
    hostile = pickle.dumps(wrap(Calls(tmp_path / "made")), protocol=protocol)

    with pytest.raises(UnsafePickleError):
        read_pickle(hostile)

    assert not (tmp_path / "made").exists()
    pickle.loads(hostile)  # noqa: S301 - the proof that it would have: Python's own reader runs it
    assert (tmp_path / "made").exists()


@pytest.mark.parametrize(
    "program",
    [
        SYSTEM + b"(S'true'\ntR.",  # GLOBAL, REDUCE
        b"\x8c\x05posix\x8c\x06system\x93\x8c\x04true\x85R.",  # STACK_GLOBAL
        b"cbuiltins\neval\n(Vprint\ntR.",
        b"(S'true'\niposix\nsystem\n.",  # INST
        b"(" + SYSTEM + b"S'true'\no.",  # OBJ
        SYSTEM + b")\x81.",  # NEWOBJ
        SYSTEM + b")}\x92.",  # NEWOBJ_EX
        b"}}b.",  # BUILD
        b"\x82\x01.",  # EXT1
        b"\x83\x01\x00.",  # EXT2
        b"\x84\x01\x00\x00\x00.",  # EXT4
        b"Pname\n.",  # PERSID
        b"NQ.",  # BINPERSID
        b"\x97.",  # NEXT_BUFFER
        b"\x8f.",  # EMPTY_SET
        b"I1\n.",  # numbers as text: protocol 0
    ],
)
def test_every_opcode_that_is_not_data_is_refused(program: bytes) -> None:
    with pytest.raises(PickleError):
        read_pickle(b"\x80\x04" + program)


@pytest.mark.parametrize(
    "bomb",
    [
        b"\x80\x02Nr\xff\xff\xff\x7f.",  # a memo index of 2^31: Python's reader makes an array of it
        b"\x80\x04X\xff\xff\xff\x7f.",  # a text of 2 GB that is not there
        b"\x80\x04\x8e" + struct.pack("<Q", 2**62) + b".",
        b"\x80\x04\x95" + struct.pack("<Q", 2**62) + b"N.",  # a frame of 4 EB
        b"\x80\x02\x8a\xff" + b"\x7f" * 255 + b".",  # a number of 2,040 bits
        b"\x80\x02" + b"(" * 10_000 + b".",
        b"\x80\x02" + b"]" * 10_000 + b"a" * 9_999 + b".",  # nested so deep
        b"\x80\x02]q\x00" + b"h\x00" * 10_000 + b".",
        b"\x80\x02)" + b"\x85" * 10_000 + b".",
        # a tuple that doubles 60 times, as a key: to hash it takes 2^60 steps
        b"\x80\x02)" + b"".join(b"q\x00h\x00\x86" for _ in range(60)) + b"q\x00}h\x00Ns.",
    ],
    ids=["memo", "text", "bytes", "frame", "number", "marks", "nested", "references", "tuples", "hash"],
)
def test_bombs_cost_no_more_than_their_length(bomb: bytes) -> None:
    tracemalloc.start()
    try:
        read_pickle(bomb)
    except PickleError:
        pass
    finally:
        peak_bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()

    assert peak_bytes < 200 * len(bomb) + 100_000


def test_lists_that_hold_themselves_do_no_harm() -> None:
    found = read_pickle(b"\x80\x02]q\x00h\x00a.")

    assert found[0] is found
