"""Test files: those of `data`, and small ones created here.

`data` was created with PyTorch 2.15, safetensors 0.8 and our own numbers: a model of four layers, the first dense, with
eight experts in twelve slots, two per token.  `values.pt` holds one of each kind of value, `legacy.pt` has PyTorch's
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
    """A file that the library of a real engine wrote."""
    return (DATA / name).read_bytes()


def npy(array: npt.ArrayLike) -> bytes:
    """One array as an .npy file."""
    stream = io.BytesIO()
    np.save(stream, np.asarray(array))
    return stream.getvalue()


def npz(*, compressed: bool = False, **arrays: Any) -> bytes:
    """Several arrays as an .npz file."""
    stream = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(stream, **arrays)
    return stream.getvalue()


def torch_zip(pickle: bytes, **storages: bytes) -> bytes:
    """A .pt file around a given pickle; storages by key, `_0` for 0."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("archive/data.pkl", pickle)
        for key, data in storages.items():
            archive.writestr(f"archive/data/{key.removeprefix('_')}", data)
    return stream.getvalue()
