"""PyTorch's .pt files without PyTorch: a zip of one pickle, which names tensors, and of the tensors' bytes.

Read in `torch/serialization.py` and `torch/_utils.py` (2.15): `<folder>/data.pkl` refers to its storages by
("storage", type, key, device, length), their bytes are in `<folder>/data/<key>`, and a tensor is a call of
`_rebuild_tensor_v2(storage, offset, size, stride, ...)`, or of `_v3` with the type behind.  Devices do not matter: a
tensor saved on a GPU has its bytes in the file too.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fleet.documents import RuleError
from fleet.safe_pickle import Arguments, Name, PickleError, read_pickle
from placement.formats.arrays import MAX_UNPACKED_BYTES, Archive, Numbers, open_archive

PICKLE = "/data.pkl"
_STORAGES: Mapping[str, str] = {
    "ByteStorage": "u1",
    "CharStorage": "i1",
    "ShortStorage": "i2",
    "IntStorage": "i4",
    "LongStorage": "i8",
    "HalfStorage": "f2",
    "FloatStorage": "f4",
    "DoubleStorage": "f8",
    "UntypedStorage": "u1",
}
_TYPES: Mapping[str, str] = {"uint16": "u2", "uint32": "u4", "uint64": "u8"}  # types without a storage class


@dataclass(frozen=True, eq=False)
class _Storage:
    numbers: Numbers  # one-dimensional, as in the file


def read_torch(data: bytes) -> Any:
    """Lists, dictionaries, numbers and texts as saved; tensors as numpy arrays."""
    archive = open_archive(data)
    pickles = [name for name in archive.names if name.endswith(PICKLE) and name.count("/") == 1]
    if len(pickles) != 1:
        raise RuleError([((), f"is not a file of torch.save: expected one {PICKLE[1:]}, got {len(pickles)}")])
    reader = _Reader(archive, pickles[0].removesuffix(PICKLE))
    calls = {
        Name("torch._utils", "_rebuild_tensor_v2"): reader.tensor,
        Name("torch._utils", "_rebuild_tensor_v3"): reader.typed_tensor,
        Name("collections", "OrderedDict"): _empty_dictionary,  # a tensor's hooks; those of data are empty
    }
    try:
        return read_pickle(archive.member(pickles[0]), calls=calls, persistent=reader.storage)
    except PickleError as error:
        raise RuleError([((), str(error))]) from error


def _empty_dictionary(arguments: Arguments) -> dict[str, Any]:
    if arguments:
        raise RuleError([((), "holds an ordered dictionary with hooks, which tensors of data do not have")])
    return {}


class _Reader:
    """Builds arrays from a pickle's description, within the bytes of the file."""

    def __init__(self, archive: Archive, folder: str) -> None:
        self._archive = archive
        self._folder = folder
        self._read: dict[str, _Storage] = {}
        self._order = ">" if self._byte_order() == b"big" else "<"
        self._elements = 0

    def _byte_order(self) -> bytes:
        name = f"{self._folder}/byteorder"
        return self._archive.member(name).strip() if name in self._archive.names else b"little"

    def storage(self, reference: Any) -> _Storage:
        match reference:
            case ("storage", Name(module="torch" | "torch.storage", name=name), str(key), str(), int(length)):
                pass
            case _:
                raise RuleError([((), f"refers to {str(reference)[:80]!r}, expected the storage of a tensor")])
        if name not in _STORAGES:
            raise RuleError([((), f"holds a {name}, expected one of {', '.join(_STORAGES)}")])
        if key not in self._read:
            dtype = np.dtype(self._order + _STORAGES[name])
            found = self._archive.member(f"{self._folder}/data/{key}")
            if len(found) != length * dtype.itemsize:
                raise RuleError([((f"data/{key}",), f"must be {length * dtype.itemsize:,} bytes, got {len(found):,}")])
            self._read[key] = _Storage(np.frombuffer(found, dtype=dtype))
        return self._read[key]

    def tensor(self, arguments: Arguments) -> Numbers:
        """`_rebuild_tensor_v2`: the storage's type is the tensor's."""
        storage, offset, size, stride, *_ = arguments
        if not isinstance(storage, _Storage):
            raise RuleError([((), "holds a tensor without a storage")])
        return self._strided(storage.numbers, offset, size, stride)

    def typed_tensor(self, arguments: Arguments) -> Numbers:
        """`_rebuild_tensor_v3`: bytes, and the type beside them."""
        storage, offset, size, stride, _, _, dtype, *_ = arguments
        if not isinstance(storage, _Storage) or not isinstance(dtype, Name) or dtype.name not in _TYPES:
            raise RuleError([((), f"holds a tensor of {dtype}, expected one of {', '.join(_TYPES)}")])
        numbers = storage.numbers.view(np.dtype(self._order + _TYPES[dtype.name]))
        return self._strided(numbers, offset, size, stride)

    def _strided(self, numbers: Numbers, offset: Any, size: Any, stride: Any) -> Numbers:
        if not (_whole((offset,)) and _whole(size) and _whole(stride) and len(size) == len(stride)):
            raise RuleError(
                [((), "holds a tensor whose offset, size or stride is not made of whole numbers from 0 up")]
            )
        elements = math.prod(size)
        self._elements += elements  # a stride of 0 makes any size out of one number
        if self._elements * numbers.itemsize > MAX_UNPACKED_BYTES:
            raise RuleError([((), f"must hold tensors of at most {MAX_UNPACKED_BYTES:,} bytes together")])
        reach = offset + sum((length - 1) * step for length, step in zip(size, stride, strict=True))
        if elements and reach >= len(numbers):
            raise RuleError([((), f"holds a tensor that reaches to {reach:,} in a storage of {len(numbers):,}")])
        if not elements:
            return np.empty(size, dtype=numbers.dtype)
        steps = [step * numbers.itemsize for step in stride]
        return np.lib.stride_tricks.as_strided(numbers[offset:], shape=size, strides=steps, writeable=False)


def _whole(values: Any) -> bool:
    return isinstance(values, tuple) and all(type(value) is int and 0 <= value < 1 << 40 for value in values)
