"""Pickles of plain data are read as by Python; all others are refused before they call anything."""

import os
import pickle
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fleet.pickle_check import MAX_VALUES, is_harmless
from fleet.safe_pickle import CHECKED_BYTES, PickleError, UnsafePickleError, read_pickle

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

with_short_keys = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=10) | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text() | st.integers(0, 2**31), inner, max_size=5),
    max_leaves=12,
)

# Module and function names of a hostile pickle; nothing is called.
SYSTEM = b"cposix\nsystem\n"


class Calls:
    """Its pickle creates a folder when Python loads it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


@given(plain, st.integers(3, pickle.HIGHEST_PROTOCOL))
def test_plain_data_reads_back_equal(value: Any, protocol: int) -> None:
    assert read_pickle(pickle.dumps(value, protocol=protocol)) == value


def test_protocol_2_has_no_opcode_for_bytes() -> None:
    """Python writes a call of its codec instead."""
    with pytest.raises(UnsafePickleError):
        read_pickle(pickle.dumps(b"bytes", protocol=2))


@given(plain, st.integers(2, pickle.HIGHEST_PROTOCOL), st.data())
def test_a_truncated_pickle_is_refused(value: Any, protocol: int, data: st.DataObject) -> None:
    whole = pickle.dumps(value, protocol=protocol)
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]

    with pytest.raises(PickleError):
        read_pickle(cut)


@given(st.binary(max_size=400))
def test_arbitrary_bytes_give_plain_data_or_are_refused(data: bytes) -> None:
    try:
        found = read_pickle(b"\x80\x02" + data)
    except PickleError:
        return
    assert isinstance(found, str | int | float | bytes | tuple | list | dict | type(None))


@given(st.data(), plain)
def test_damaged_pickles_give_plain_data_or_are_refused(data: st.DataObject, value: Any) -> None:
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
def test_a_pickle_with_a_call_is_refused_without_calling(tmp_path: Path, protocol: int, wrap: Any) -> None:
    hostile = pickle.dumps(wrap(Calls(tmp_path / "made")), protocol=protocol)

    with pytest.raises(UnsafePickleError):
        read_pickle(hostile)

    assert not (tmp_path / "made").exists()
    pickle.loads(hostile)  # noqa: S301 - proof that Python's own loader runs the call
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
def test_every_opcode_other_than_plain_data_is_refused(program: bytes) -> None:
    with pytest.raises(PickleError):
        read_pickle(b"\x80\x04" + program)


@pytest.mark.parametrize(
    "bomb",
    [
        b"\x80\x02Nr\xff\xff\xff\x7f.",  # a memo index of 2^31: Python's reader makes an array of it
        b"\x80\x04X\xff\xff\xff\x7f.",  # declares a text of 2 GB
        b"\x80\x04\x8e" + struct.pack("<Q", 2**62) + b".",
        b"\x80\x04\x95" + struct.pack("<Q", 2**62) + b"N.",  # a frame of 4 EB
        b"\x80\x02\x8a\xff" + b"\x7f" * 255 + b".",  # a number of 2,040 bits
        b"\x80\x02" + b"(" * 10_000 + b".",
        b"\x80\x02" + b"]" * 10_000 + b"a" * 9_999 + b".",  # nested 10,000 levels deep
        b"\x80\x02]q\x00" + b"h\x00" * 10_000 + b".",
        b"\x80\x02)" + b"\x85" * 10_000 + b".",
        # a tuple that doubles 60 times, as a key: to hash it takes 2^60 steps
        b"\x80\x02)" + b"".join(b"q\x00h\x00\x86" for _ in range(60)) + b"q\x00}h\x00Ns.",
    ],
    ids=["memo", "text", "bytes", "frame", "number", "marks", "nested", "references", "tuples", "hash"],
)
def test_memory_for_hostile_pickles_is_proportional_to_their_length(bomb: bytes) -> None:
    tracemalloc.start()
    try:
        read_pickle(bomb)
    except PickleError:
        pass
    finally:
        peak_bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()

    assert peak_bytes < 200 * len(bomb) + 100_000


def test_a_list_that_contains_itself_is_read() -> None:
    found = read_pickle(b"\x80\x02]q\x00h\x00a.")

    assert found[0] is found


class TestCheckedByPython:
    """A large pickle is read by Python, if a check finds it harmless."""

    @given(with_short_keys, st.integers(2, pickle.HIGHEST_PROTOCOL))
    def test_plain_data_is_harmless(self, value: Any, protocol: int) -> None:
        data = pickle.dumps(value, protocol=protocol)
        assert is_harmless(_bytes(data)) or _refused(data)

    @given(plain, st.integers(2, pickle.HIGHEST_PROTOCOL), st.data())
    def test_a_damaged_pickle_is_read_as_before_or_refused(
        self, value: Any, protocol: int, data: st.DataObject
    ) -> None:
        whole = bytearray(pickle.dumps(value, protocol=protocol))
        for _ in range(data.draw(st.integers(1, 3))):
            whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
        damaged = bytes(whole)
        if is_harmless(_bytes(damaged)):
            try:
                expected = read_pickle(damaged)
            except PickleError:
                with pytest.raises((ValueError, pickle.UnpicklingError)):
                    pickle.loads(damaged)  # noqa: S301
            else:
                assert repr(pickle.loads(damaged)) == repr(expected)  # noqa: S301

    @pytest.mark.parametrize(
        "data",
        [
            b"\x80\x02" + SYSTEM + b"X\x04\x00\x00\x00true\x85R.",
            b"\x80\x04\x8c\x05posix\x8c\x06system\x93.",
            b"\x80\x02Kar\xff\xff\xff\x7f.",  # a memo index of 2^31
            b"\x80\x04]\x8d\xff\xff\xff\xff\xff\x00\x00\x00.",  # a text of 2^40 bytes
            b"\x80\x02})" + b"\x85" * 1000 + b"Ks\x73.",  # a nested tuple as a key
            b"\x80\x02}(" + b"}K\x01u.",  # a dictionary as a key
            pickle.dumps({2**61 - 1: 1}),  # numbers with the same hash make a dictionary slow
            pickle.dumps({0.5: 1}),
            b"\x80\x02](" + b"N" * (MAX_VALUES + 1) + b"e.",
            b"\x80\x02" + b"(" * 100 + b".",
            b"\x80\x02K\x01K\x02.",  # two values
            b"\x80\x02K\x01.K",  # more after the end
            b"",
        ],
    )
    def test_more_than_plain_data_is_not_harmless(self, data: bytes) -> None:
        assert not is_harmless(_bytes(data))

    def test_a_large_pickle_reads_back_equal(self) -> None:
        value = [{"id": number, "names": (str(number), "x" * 50), "sizes": [[number]]} for number in range(5_000)]
        data = pickle.dumps(value, protocol=2)
        assert len(data) > CHECKED_BYTES
        assert read_pickle(data) == value

    def test_a_large_hostile_pickle_calls_nothing(self, tmp_path: Path) -> None:
        place = tmp_path / "made"
        data = pickle.dumps(["x" * CHECKED_BYTES, Calls(place)], protocol=2)
        with pytest.raises(UnsafePickleError):
            read_pickle(data)
        assert not place.exists()


def _bytes(data: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(bytearray(data), dtype=np.uint8)


def _refused(data: bytes) -> bool:
    try:
        read_pickle(data)
    except PickleError:
        return True
    return False
