"""The stub driver library, built once per test run, and its state file: the GPUs of one node, set by tests."""

import ctypes
import functools
import mmap
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

SOURCE = Path(__file__).with_name("stub_nvml.c")
MAX_GPUS = 8
SONAME = "-Wl,-soname,libnvidia-ml.so.1"  # a library loaded by path is then found by its name


class StubGpu(ctypes.Structure):
    """`struct gpu` of the source."""

    _fields_ = (
        ("uuid", ctypes.c_char * 96),
        ("name", ctypes.c_char * 96),
        *(
            (name, ctypes.c_uint32)
            for name in (
                *("lost", "limit_mw", "min_mw", "max_mw", "default_mw", "out_of_band_mw"),
                *("lock_low", "lock_high", "full_mhz", "lowest_mhz", "step_mhz", "memory_mhz"),
                *("busy", "busy_mw", "idle_mw", "temperature", "no_clocks"),
                *("power_writes", "clock_writes"),
            )
        ),
        *((name, ctypes.c_uint64) for name in ("energy_uj", "read_ns", "corrected", "uncorrected")),
    )


class StubNode(ctypes.Structure):
    """`struct node` of the source."""

    _fields_ = (
        *((name, ctypes.c_uint32) for name in ("loads", "gone", "gpus", "refuse", "ignore_power", "ignore_clocks")),
        ("gpu", StubGpu * MAX_GPUS),
    )


class StubDriver:
    """The driver of one node: its state and its faults."""

    def __init__(self, path: Path, *, gpus: int = 2, name: str = "NVIDIA H100 80GB HBM3") -> None:
        self.path = path
        path.write_bytes(bytes(ctypes.sizeof(StubNode)))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self.state: Any = StubNode.from_buffer(self._map)
        self.state.loads, self.state.gpus = 1, gpus
        for at in range(gpus):
            self._make(at, f"GPU-{path.stem}-{at}", name)

    def _make(self, at: int, uuid: str, name: str) -> None:
        gpu = self.state.gpu[at]
        gpu.uuid, gpu.name = uuid.encode(), name.encode()
        gpu.limit_mw = gpu.max_mw = gpu.default_mw = 700_000
        gpu.min_mw = 200_000
        gpu.full_mhz, gpu.lowest_mhz, gpu.step_mhz, gpu.memory_mhz = 1980, 345, 15, 2619
        gpu.busy, gpu.busy_mw, gpu.idle_mw, gpu.temperature = 1, 650_000, 70_000, 55
        gpu.energy_uj = 1_000_000_000

    @property
    def uuids(self) -> list[str]:
        return [self.gpu(at).uuid.decode() for at in range(self.state.gpus)]

    def gpu(self, at: int) -> Any:
        return self.state.gpu[at]

    @property
    def limits_w(self) -> list[float]:
        """The enforced power limits."""
        return [self.gpu(at).limit_mw / 1000 for at in range(self.state.gpus)]

    @property
    def locks_mhz(self) -> list[int]:
        """The enforced clock locks; 0: none."""
        return [self.gpu(at).lock_high for at in range(self.state.gpus)]

    def reload(self) -> None:
        """Invalidate every handle, drop every cap, restart every counter."""
        for at in range(self.state.gpus):
            gpu = self.gpu(at)
            gpu.limit_mw, gpu.lock_low, gpu.lock_high = gpu.default_mw, 0, 0
            gpu.energy_uj = gpu.read_ns = 0
        self.state.loads += 1

    def use(self) -> None:
        """Load the stub in this process."""
        loaded = ctypes.CDLL(str(stub_library()))
        assert loaded.stub_use(str(self.path).encode()) == 0

    def environment(self) -> dict[str, str]:
        """The environment of a process that uses this driver."""
        return {"LD_LIBRARY_PATH": str(stub_library().parent), "STUB_NVML_STATE": str(self.path)}


@functools.cache
def stub_library() -> Path:
    """The built library; skips the test without a compiler or without `nvidia-ml-py`."""
    pytest.importorskip("pynvml", reason="needs nvidia-ml-py, of the extra `gpu`")
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler for the stub driver")
    folder = Path(tempfile.mkdtemp(prefix=f"stub-nvml-{os.getpid()}-"))
    library = folder / "libnvidia-ml.so.1"
    argv = [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", SONAME, "-o", str(library), str(SOURCE)]
    subprocess.run(argv, check=True)
    loaded = ctypes.CDLL(str(library))
    assert loaded.stub_size() == ctypes.sizeof(StubNode), "stub_driver.py and stub_nvml.c differ"
    return library
