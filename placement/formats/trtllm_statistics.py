"""TensorRT-LLM's statistics of routed experts (EXPERT_STATISTIC_PATH), as its wide-EP balancer's tools read them.

Read in `_torch/.../expert_statistic.py` and `examples/wide_ep/ep_load_balancer/utils.py` (main, 2026): one file
`rank<r>.safetensors` per rank, a tensor `<iteration>_<layer>` of tokens per expert for each iteration and layer, layers
numbered in the whole model; ranks add up.  With raw recording, `rank<r>_raw.safetensors` holds under the same names the
experts of each token, [tokens, k].  The iterations of a recording are one window.

A safetensors file (README of huggingface/safetensors) has eight bytes of length, a JSON header with type, shape and
offsets of each tensor from the header's end, then the bytes, little-endian and without gaps.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from fleet.documents import RuleError, Violation
from placement.arrays import MAX_LAYERS
from placement.formats.arrays import Numbers
from placement.formats.counts import Counts, Routed
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
_NAME = re.compile(r"([0-9]{1,18})_([0-9]{1,4})")


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
        violation for name, entry in tensors.items() for violation in _tensor_violations(name, entry, capacity)
    )
    return {name: _tensor(data, 8 + length, entry) for name, entry in tensors.items()}


def _tensor_violations(name: str, entry: Any, capacity: int) -> Iterator[Violation]:
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


def statistics(tensors: Mapping[str, Numbers]) -> Counts | Routed:
    """Counts, or the tokens of a raw recording."""
    by_layer = _by_layer(tensors)
    dimensions = {found.ndim for rows in by_layer.values() for found in rows.values()}
    if dimensions == {1}:
        return _counts(by_layer)
    if dimensions == {2}:
        return _routed(by_layer)
    raise RuleError([((), "must hold tensors of one dimension (tokens per expert) or of two (tokens x experts each)")])


def _by_layer(tensors: Mapping[str, Numbers]) -> dict[int, dict[int, Numbers]]:
    """Layer -> iteration -> tensor, both rising."""
    found: dict[int, dict[int, Numbers]] = defaultdict(dict)
    for name, tensor in tensors.items():
        matched = _NAME.fullmatch(name)
        if matched is None or int(matched[2]) >= MAX_LAYERS or tensor.dtype.kind not in "iu":
            raise RuleError([((name,), "must be whole numbers under a name <iteration>_<layer>, such as 100_3")])
        found[int(matched[2])][int(matched[1])] = tensor
    if not found:
        raise RuleError([((), "must hold at least one tensor <iteration>_<layer>")])
    ordered = {layer: dict(sorted(found[layer].items())) for layer in sorted(found)}
    first = next(iter(ordered))
    for layer, rows in ordered.items():
        if rows.keys() != ordered[first].keys():
            raise RuleError([((f"layer {layer}",), f"must have been recorded in the same iterations as layer {first}")])
    return ordered


def _counts(by_layer: Mapping[int, Mapping[int, Numbers]]) -> Counts:
    experts = {len(found) for rows in by_layer.values() for found in rows.values()}
    if len(experts) > 1:
        raise RuleError([((), f"must have as many experts in each layer and iteration, got {sorted(experts)}")])
    tokens = np.array([sum(found.astype(np.float64) for found in rows.values()) for rows in by_layer.values()])
    return Counts(tokens[np.newaxis], tuple(by_layer), of_one_rank=True)


def _routed(by_layer: Mapping[int, Mapping[int, Numbers]]) -> Routed:
    """A token keeps its position in the batch from layer to layer of one iteration."""
    rows = list(by_layer.values())
    shapes = [[found.shape for found in row.values()] for row in rows]
    if any(of_layer != shapes[0] for of_layer in shapes):
        raise RuleError([((), "must hold as many tokens in every layer of an iteration")])
    if len({width for _, width in shapes[0]}) > 1:
        raise RuleError([((), "must hold as many experts for each token")])
    experts = np.stack([np.concatenate(list(row.values())) for row in rows], axis=1)
    return Routed(experts, tuple(by_layer))
