"""Safetensors files: eight bytes of length, a JSON header with type, shape and offsets of each tensor, then the bytes.

The format of the README (huggingface/safetensors, format section): little-endian, without gaps, offsets from the
header's end.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from fleet.documents import RuleError, Violation
from placement.formats.arrays import Numbers
from placement.formats.json_csv import read_json

MAX_HEADER_BYTES = 100_000_000  # the format's own limit
_TYPES: Mapping[str, str] = {
    "U8": "u1",
    "I8": "i1",
    "U16": "<u2",
    "I16": "<i2",
    "U32": "<u4",
    "I32": "<i4",
    "U64": "<u8",
    "I64": "<i8",
    "F16": "<f2",
    "F32": "<f4",
    "F64": "<f8",
}


def is_safetensors(data: bytes) -> bool:
    """Whether it starts with a length that fits and a JSON object."""
    return len(data) > 9 and data[8:9] == b"{" and 8 + int.from_bytes(data[:8], "little") <= len(data)


def read_safetensors(data: bytes) -> dict[str, Numbers]:
    length = int.from_bytes(data[:8], "little")
    if not is_safetensors(data) or length > MAX_HEADER_BYTES:
        raise RuleError([((), f"is not a whole safetensors file: its header has {length:,} bytes")])
    header = read_json(data[8 : 8 + length])
    tensors = {name: entry for name, entry in header.items() if name != "__metadata__"}
    capacity = len(data) - 8 - length
    RuleError.raise_for(
        violation for name, entry in tensors.items() for violation in _violations(name, entry, capacity)
    )
    return {name: _tensor(data, 8 + length, entry) for name, entry in tensors.items()}


def _violations(name: str, entry: Any, capacity: int) -> Iterator[Violation]:
    match entry:
        case {"dtype": str(dtype), "shape": [*shape], "data_offsets": [int(start), int(end)]}:
            pass
        case _:
            yield (name,), "must have dtype, shape and data_offsets"
            return
    if dtype not in _TYPES:
        yield (name, "dtype"), f"must be one of {', '.join(_TYPES)}, got {dtype}"
    elif not all(type(size) is int and size >= 0 for size in shape):
        yield (name, "shape"), "must be whole numbers from 0 up"
    elif not 0 <= start <= end <= capacity:
        yield (name, "data_offsets"), f"must be a range within 0 to {capacity:,}, got {start:,} to {end:,}"
    elif math.prod(shape) * np.dtype(_TYPES[dtype]).itemsize != end - start:
        yield (name, "data_offsets"), f"must span what shape {shape} of {dtype} takes, got {end - start:,} bytes"


def _tensor(data: bytes, first: int, entry: Any) -> Numbers:
    shape = tuple(entry["shape"])
    start = first + entry["data_offsets"][0]
    return np.frombuffer(data, dtype=_TYPES[entry["dtype"]], count=math.prod(shape), offset=start).reshape(shape)
