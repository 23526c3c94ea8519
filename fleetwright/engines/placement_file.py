"""The placement file that the vLLM plug-in reads: found, checked against the engine's numbers, and put in its order.

The file is what `fleetwright place export --engine vllm` writes, or a placement.json itself: a JSON object with
`physical_to_logical_map` [MoE layers][slots]; `experts` and `gpus`, where they stand, must be the engine's.  Replace it
by `publish`, whole: a reader sees the old file or the new one.

Needs numpy and nothing of ours.
"""

import hashlib
import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
MAP = "physical_to_logical_map"
MAX_BYTES = 1 << 26  # 1000 layers of 4096 slots are 25 MB


@dataclass(frozen=True)
class MapShape:
    """What the engine says its placements must look like."""

    layers: int  # MoE layers only
    experts: int
    slots: int
    gpus: int


class UnusableError(ValueError):
    """Why this placement is not for this engine."""


def parse(text: bytes, *, shape: MapShape) -> Ints:
    """The map [layers, slots] in a placement file, if it fits the engine."""
    document = json.loads(text)
    if not isinstance(document, dict) or MAP not in document:
        raise UnusableError(f"must be a JSON object with {MAP}")
    for field, wanted in (("experts", shape.experts), ("gpus", shape.gpus)):
        given = document.get(field)
        if isinstance(given, int) and given != wanted:
            raise UnusableError(f"{field} must be {wanted} as the engine has, got {given}")
    try:
        expert_of_slot = np.array(document[MAP])
    except ValueError as error:
        raise UnusableError(f"{MAP} must hold rows of one length") from error
    if expert_of_slot.dtype.kind != "i" or expert_of_slot.shape != (shape.layers, shape.slots):
        given_shape = expert_of_slot.shape if expert_of_slot.dtype.kind == "i" else expert_of_slot.dtype
        message = f"{MAP} must be whole numbers, {shape.layers} MoE layers x {shape.slots} slots, got {given_shape}"
        raise UnusableError(message)
    return _checked(expert_of_slot.astype(np.int64), shape)


def _checked(expert_of_slot: Ints, shape: MapShape) -> Ints:
    if ((expert_of_slot < 0) | (expert_of_slot >= shape.experts)).any():
        raise UnusableError(f"{MAP} must name experts from 0 to {shape.experts - 1}")
    for layer, row in enumerate(expert_of_slot):
        missing = np.flatnonzero(np.bincount(row, minlength=shape.experts) == 0)
        if len(missing):
            raise UnusableError(f"{MAP}[{layer}] must hold every expert, {missing[0]} is in no slot")
    return expert_of_slot


def fingerprint(expert_of_slot: Ints) -> int:
    """A number from 1 up that different maps do not share."""
    digest = hashlib.blake2b(np.ascontiguousarray(expert_of_slot).tobytes(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 2 | 1


def settled(wanted: Ints, current: Ints, *, gpus: int) -> Ints:
    """`wanted`, with each expert that stays on its GPU left in the slot where it is: nothing is copied within a GPU.

    Slots of one GPU are alike to everyone else, so their order is free.
    """
    if current.shape != wanted.shape:
        return wanted
    layers, slots = wanted.shape
    found = wanted.reshape(layers * gpus, slots // gpus).copy()
    for row, before in zip(found, current.reshape(found.shape), strict=True):
        left = row.tolist()
        open_slots = []
        for slot, expert in enumerate(before.tolist()):
            if expert in left:
                left.remove(expert)
                row[slot] = expert
            else:
                open_slots.append(slot)
        row[open_slots] = left
    return found.reshape(wanted.shape)


class PlacementFile:
    """Reads the file again when another has taken its place."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._version: tuple[int, int, int] | None = None
        self._text = b""

    def read(self, shape: MapShape) -> Ints:
        """The placement in it now, or an OSError or ValueError that says why there is none."""
        found = self.path.stat()
        version = (found.st_mtime_ns, found.st_size, found.st_ino)
        if version != self._version:
            if found.st_size > MAX_BYTES:
                raise UnusableError(f"must be at most {MAX_BYTES:,} bytes, got {found.st_size:,}")
            self._text = self.path.read_bytes()
            self._version = version
        return parse(self._text, shape=shape)


def publish(text: str, path: Path) -> None:
    """Put a new file in the old one's place, at once and for good, readable to whoever runs the engine."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def describe(error: BaseException) -> str:
    """An error as a reason in a log line."""
    return str(error) or type(error).__name__


def as_map(value: Any) -> Ints:
    """The engine's tensor, on whatever device, as an array."""
    found: Ints = np.asarray(value.cpu() if hasattr(value, "cpu") else value).astype(np.int64)
    return found
