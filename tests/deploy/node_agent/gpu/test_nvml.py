"""The real `nvidia-ml-py` over a stub driver library."""

import subprocess
import sys
from pathlib import Path

import pytest

from deploy.node_agent.gpu.errors import (
    DriverGoneError,
    GpuLostError,
    NoPermissionError,
    NotSupportedError,
    OutOfRangeError,
)
from deploy.node_agent.gpu.interface import Caps
from deploy.node_agent.gpu.nvml import NvmlDriver
from tests.deploy.node_agent.gpu.stub_driver import StubDriver

ROOT = Path(__file__).parents[4]


def test_a_poll_reports_all_values_in_base_units(driver: StubDriver, nvml: NvmlDriver) -> None:
    first, second = nvml.identities()
    assert (first.uuid, first.name, first.bus_id) == (
        driver.uuids[0],
        "NVIDIA H100 80GB HBM3",
        "00000000:01:00.0",
    )
    driver.gpu(0).corrected, driver.gpu(0).uncorrected = 3, 1
    driver.gpu(1).busy = 0
    reading, idle = nvml.read(first.uuid), nvml.read(second.uuid)
    assert (reading.power_w, reading.temperature_c, reading.sm_clock_mhz, reading.memory_clock_mhz) == (
        *(650.0, 55, 1980),
        2619,
    )
    assert (reading.utilization, reading.ecc_corrected, reading.ecc_uncorrected) == (1.0, 3, 1)
    assert reading.energy_j == pytest.approx(1000.0, abs=50.0)
    assert (idle.utilization, idle.slowed_by, idle.power_w) == (0.0, ("idle",), 70.0)
    limits = nvml.limits(first.uuid)
    assert (limits.min_w, limits.max_w, limits.default_w) == (200.0, 700.0, 700.0)
    assert (limits.full_clock_mhz, limits.brake_clock_mhz, len(limits.clocks_mhz)) == (1980, 345, 110)


def test_caps_are_set_within_the_drivers_limits_and_read_back(driver: StubDriver, nvml: NvmlDriver) -> None:
    uuid = driver.uuids[1]
    nvml.set_power_limit(uuid, 450.0)
    nvml.lock_clock(uuid, 1500)
    assert driver.limits_w == [700.0, 450.0]
    assert driver.locks_mhz == [0, 1500]
    assert driver.gpu(1).lock_low == 345  # an idle GPU still idles
    assert nvml.enforced(uuid) == Caps(power_limit_w=450.0)  # NVML reports no lock
    assert nvml.read(uuid).slowed_by == ("power-cap",)
    nvml.lock_clock(uuid, None)
    nvml.set_power_limit(uuid, None)
    assert (driver.limits_w, driver.locks_mhz) == ([700.0, 700.0], [0, 0])


def test_an_out_of_band_limit_is_reported_as_enforced(driver: StubDriver, nvml: NvmlDriver) -> None:
    driver.gpu(0).out_of_band_mw = 300_000
    assert nvml.enforced(driver.uuids[0]).power_limit_w == 300.0


def test_driver_errors_have_their_exception_types(driver: StubDriver, nvml: NvmlDriver) -> None:
    uuid, other = driver.uuids
    with pytest.raises(OutOfRangeError, match="Invalid Argument"):
        nvml.set_power_limit(uuid, 100.0)
    driver.state.refuse = 1
    with pytest.raises(NoPermissionError):
        nvml.set_power_limit(uuid, 400.0)
    with pytest.raises(NoPermissionError):
        nvml.lock_clock(uuid, 1500)
    driver.state.refuse = 0
    driver.gpu(0).lost = 1
    with pytest.raises(GpuLostError):
        nvml.read(uuid)
    assert nvml.read(other).power_w == 650.0
    driver.gpu(1).no_clocks = 1
    assert nvml.limits(other).clocks_mhz == ()
    with pytest.raises(NotSupportedError):
        nvml.lock_clock(other, 1500)
    with pytest.raises(GpuLostError):
        nvml.read("GPU-none")
    assert nvml.epoch == 1


def test_a_reload_renews_the_handles_and_increments_the_epoch(driver: StubDriver, nvml: NvmlDriver) -> None:
    uuid = driver.uuids[0]
    nvml.set_power_limit(uuid, 450.0)
    driver.reload()
    assert nvml.enforced(uuid).power_limit_w == 700.0
    assert nvml.epoch == 2
    assert nvml.read(uuid).power_w == 650.0
    assert nvml.epoch == 2


def test_a_lower_energy_counter_counts_as_a_reload(driver: StubDriver, nvml: NvmlDriver) -> None:
    uuid = driver.uuids[0]
    nvml.read(uuid)
    driver.gpu(0).energy_uj = driver.gpu(0).read_ns = 0
    nvml.read(uuid)
    assert nvml.epoch == 2
    nvml.read(uuid)
    assert nvml.epoch == 2


def test_a_driver_that_returns_after_a_loss_is_reopened(driver: StubDriver, nvml: NvmlDriver) -> None:
    uuid = driver.uuids[0]
    driver.state.gone = 1
    for _ in range(2):
        with pytest.raises(DriverGoneError):
            nvml.read(uuid)
    driver.reload()
    driver.state.gone = 0
    assert nvml.read(uuid).power_w == 650.0
    assert nvml.epoch == 2


def test_a_gpu_lost_at_a_reload_does_not_affect_the_others(driver: StubDriver, nvml: NvmlDriver) -> None:
    lost, other = driver.uuids
    driver.gpu(0).lost = 1
    driver.reload()
    assert nvml.read(other).power_w == 650.0
    with pytest.raises(GpuLostError, match="the driver does not list this GPU any more"):
        nvml.read(lost)
    assert [gpu.uuid for gpu in nvml.identities()] == [other]


def test_a_missing_library_or_package_is_reported() -> None:
    code = (
        "from deploy.node_agent.gpu.nvml import NvmlDriver\n"
        "from deploy.node_agent.gpu.errors import DriverGoneError\n"
        "try: NvmlDriver()\n"
        "except DriverGoneError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "Shared Library Not Found" in done.stdout
    hidden = f"import sys\nsys.modules['pynvml'] = None\n{code}"
    done = subprocess.run([sys.executable, "-c", hidden], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "NVIDIA GPUs need an extra: pip install 'fleetwright[gpu]'\n"
