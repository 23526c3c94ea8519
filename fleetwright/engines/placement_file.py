"""The placement file of the vLLM plug-in: reads it, checks it against the engine and reorders its slots.

`fleetwright place export --engine vllm` writes the file; a placement.json works too.  It is a JSON object with
`physical_to_logical_map` [MoE layers][slots]; `experts` and `gpus`, if present, must equal the engine's.  `publish`
replaces the file atomically.
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
    layers: int  # MoE layers only
    experts: int
    slots: int
    gpus: int


class UnusableError(ValueError):
    """This placement does not fit this engine; the message has the reason."""


def parse(text: bytes, *, shape: MapShape) -> Ints:
    """Return the map [layers, slots] of a placement file that fits the engine."""
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
    """Return a positive number that differs for different maps."""
    digest = hashlib.blake2b(np.ascontiguousarray(expert_of_slot).tobytes(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 2 | 1


def settled(wanted: Ints, current: Ints, *, gpus: int) -> Ints:
    """Return `wanted`, with each expert that stays on its GPU left in its slot, so nothing is copied within a GPU.

    The order of the slots of one GPU has no effect.
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
    def __init__(self, path: Path) -> None:
        self.path = path
        self._version: tuple[int, int, int] | None = None
        self._text = b""

    def read(self, shape: MapShape) -> Ints:
        """Return the current placement.  Raise OSError or ValueError with the reason if there is none."""
        found = self.path.stat()
        version = (found.st_mtime_ns, found.st_size, found.st_ino)
        if version != self._version:
            if found.st_size > MAX_BYTES:
                raise UnusableError(f"must be at most {MAX_BYTES:,} bytes, got {found.st_size:,}")
            self._text = self.path.read_bytes()
            self._version = version
        return parse(self._text, shape=shape)


def publish(text: str, path: Path) -> None:
    """Replace the file atomically and durably, readable to the engine's user."""
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
    return str(error) or type(error).__name__


def as_map(value: Any) -> Ints:
    found: Ints = np.asarray(value.cpu() if hasattr(value, "cpu") else value).astype(np.int64)
    return found
