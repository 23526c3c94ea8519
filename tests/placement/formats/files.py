"""Files to read: those of `data`, and small ones made here.

`data` was made with PyTorch 2.15, safetensors 0.8 and numbers of our own: a model of four layers, the first dense, with
eight experts in twelve slots, two per token.  `values.pt` holds one of each kind of value, `legacy.pt` is in PyTorch's
format before 1.6.
"""

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

DATA = Path(__file__).parent / "data"


def data_file(name: str) -> bytes:
    """A file that a real engine's library wrote."""
    return (DATA / name).read_bytes()


def npy(array: npt.ArrayLike) -> bytes:
    """As numpy saves it."""
    stream = io.BytesIO()
    np.save(stream, np.asarray(array))
    return stream.getvalue()


def npz(*, compressed: bool = False, **arrays: Any) -> bytes:
    """The same of several."""
    stream = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(stream, **arrays)
    return stream.getvalue()


def torch_zip(pickle: bytes, **storages: bytes) -> bytes:
    """A .pt file around a pickle of the test's making; storages by key, `_0` for 0."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("archive/data.pkl", pickle)
        for key, data in storages.items():
            archive.writestr(f"archive/data/{key.removeprefix('_')}", data)
    return stream.getvalue()
