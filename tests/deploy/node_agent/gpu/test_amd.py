"""The real `amdsmi` package over a stub of its library; skipped if the package is not installed.

`make install` installs it into a folder that only these tests use: without ROCm's library Ray would fail over it.
"""

import ctypes
import importlib.util
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from deploy.node_agent.gpu.amd import AmdDriver
from deploy.node_agent.gpu.cap_state_machine import Event
from deploy.node_agent.gpu.errors import DriverGoneError, NoPermissionError, OutOfRangeError
from deploy.node_agent.gpu.gpu_state import CapKind
from deploy.node_agent.gpu.interface import Caps
from tests.deploy.node_agent.gpu.conftest import CapHarness

SOURCE = Path(__file__).with_name("stub_amd.c")
ROOT = Path(__file__).parents[4]
PACKAGE_FOLDER = Path(sys.prefix) / "amd"
BUILD = ("-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror")


class Stub(ctypes.Structure):
    """`struct stub` of the source."""

    _fields_ = (
        *(
            (name, ctypes.c_uint32)
            for name in (
                *("refuse", "ignore", "loads", "least_mhz", "top_mhz", "clock_mhz"),
                *("watts", "perf_level"),
            )
        ),
        ("cap_uw", ctypes.c_uint64),
        ("energy", ctypes.c_uint64),
    )


def installed() -> Path:
    """The package's wrapper; importing it without a library fails."""
    spec = importlib.util.find_spec("amdsmi")  # does not load the package
    if spec is None or spec.origin is None:
        pytest.skip("needs the package amdsmi")
    return Path(spec.origin).with_name("amdsmi_wrapper.py")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ctypes.CDLL]:
    """Build the library with every function that the package uses, in its search path."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler for the stub library")
    with importable_amdsmi() as wrapper:
        yield from built(wrapper, compiler, tmp_path_factory)


@contextmanager
def importable_amdsmi() -> Iterator[Path]:
    """Make the package importable, and unload it afterwards, since other tests load Ray."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(PACKAGE_FOLDER)
        try:
            yield installed()
        finally:
            for name in [name for name in sys.modules if name.partition(".")[0] == "amdsmi"]:
                del sys.modules[name]


def built(wrapper: Path, compiler: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ctypes.CDLL]:
    """The stub library in the search path of the package."""
    home = tmp_path_factory.mktemp("rocm")
    (home / "lib").mkdir()
    wanted = set(re.findall(r"_libraries\['libamd_smi.so'\]\.(\w+)", wrapper.read_text()))
    source = SOURCE.read_text()
    there = set(re.findall(r"^int (\w+)\(", source, re.MULTILINE))
    rest = "\n".join(f"int {name}(void) {{ return NOT_SUPPORTED; }}" for name in sorted(wanted - there))
    (home / "stub.c").write_text(f"{source}\n{rest}\n")
    stub = home / "lib" / "libamd_smi.so"
    subprocess.run([compiler, *BUILD, "-o", str(stub), str(home / "stub.c")], check=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROCM_HOME", str(home))
        yield ctypes.CDLL(str(stub))


@pytest.fixture
def stub(library: ctypes.CDLL) -> Any:
    """An idle board."""
    stub: Any = Stub.in_dll(library, "stub")
    stub.refuse = stub.ignore = 0
    stub.loads = stub.loads + 1
    stub.least_mhz, stub.top_mhz, stub.clock_mhz = 132, 2100, 2090
    stub.watts, stub.cap_uw, stub.energy = 640, 750_000_000, 1_000_000
    return stub


def test_a_poll_reports_all_values_in_base_units(stub: Any) -> None:
    gpus = AmdDriver()
    (gpu,) = gpus.identities()
    assert (gpu.uuid, gpu.name, gpu.bus_id) == ("amd-0", "AMD Instinct MI300X", "0000:03:00.0")
    reading, limits = gpus.read("amd-0"), gpus.limits("amd-0")
    assert (reading.power_w, reading.temperature_c, reading.utilization) == (640.0, 61, 0.98)
    assert (reading.sm_clock_mhz, reading.memory_clock_mhz, reading.ecc_corrected) == (2090.0, 1300.0, None)
    assert reading.energy_j == pytest.approx(15.3)
    assert (limits.min_w, limits.max_w, limits.default_w) == (200.0, 750.0, 750.0)
    assert (limits.full_clock_mhz, limits.brake_clock_mhz) == (2100, 132)
    assert gpus.enforced("amd-0") == Caps(750.0, 2100)
    stub.energy = 10
    gpus.read("amd-0")
    assert gpus.epoch == 2
    gpus.close()


def test_driver_errors_have_their_exception_types(stub: Any) -> None:
    gpus = AmdDriver()
    with pytest.raises(OutOfRangeError, match="AMDSMI_STATUS_INVAL"):
        gpus.set_power_limit("amd-0", 900.0)
    stub.refuse = 1
    with pytest.raises(NoPermissionError, match="AMDSMI_STATUS_NO_PERM"):
        gpus.set_power_limit("amd-0", 500.0)
    with pytest.raises(NoPermissionError):
        gpus.lock_clock("amd-0", 1500)
    gpus.close()


def test_caps_hold_across_ignored_writes_and_a_reload_and_are_restored(stub: Any) -> None:
    cap_harness = CapHarness(AmdDriver())
    stub.ignore = 1
    cap_harness.request(power_limit_w=500.0, clock_mhz=1500, lease_s=1e6)
    cap_harness.reconcile(20)
    (state,) = cap_harness.cap_controller.gpu_states()
    assert state.planned == state.applied == state.enforced == Caps(500.0, 1500)
    assert cap_harness.cap_controller.counts[CapKind.POWER, Event.IGNORED] == 1
    stub.loads, stub.cap_uw, stub.top_mhz, stub.energy = stub.loads + 1, 750_000_000, 2100, 0
    cap_harness.reconcile(2)
    assert (stub.cap_uw, stub.top_mhz) == (500_000_000, 1500)
    assert cap_harness.gpus.epoch == 2
    assert cap_harness.cap_controller.restore()
    assert (stub.cap_uw, stub.top_mhz) == (750_000_000, 2100)


def test_a_missing_package_or_library_is_reported(tmp_path: Path) -> None:
    code = "import sys\nfrom deploy.node_agent.gpu.amd import AmdDriver\n"
    code += "from deploy.node_agent.gpu.errors import DriverGoneError\n"
    code += "try: AmdDriver()\nexcept DriverGoneError as error: print(error)\n"
    hidden = f"import sys\nsys.modules['amdsmi'] = None\n{code}"
    done = subprocess.run([sys.executable, "-c", hidden], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "AMD GPUs need the package `amdsmi`, which comes with ROCm\n"
    (tmp_path / "amdsmi.py").write_text("raise KeyError('libamd_smi.so')\n")
    found = f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\n{code}"
    done = subprocess.run([sys.executable, "-c", found], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "AMD GPUs need libamd_smi.so of ROCm: 'libamd_smi.so'\n"
    with pytest.raises(DriverGoneError), pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "amdsmi", None)
        AmdDriver()
