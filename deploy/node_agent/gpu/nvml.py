"""NVIDIA GPUs through `nvidia-ml-py`, imported at first use.

Facts (NVML API reference): every write needs root; the enforced limit includes out-of-band limits; limits and locked
clocks are lost when the driver is reloaded; the energy counter restarts with it; no function reports a locked clock.

An error of a stale handle counts as a driver that is gone: the library is opened again and called once more.
"""

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

from deploy.node_agent.gpu.errors import (
    DriverGoneError,
    GpuError,
    GpuLostError,
    NoPermissionError,
    NotSupportedError,
    OutOfRangeError,
)
from deploy.node_agent.gpu.handles import HandleDriver
from deploy.node_agent.gpu.interface import Caps, GpuIdentity, GpuLimits, GpuReading

PERIOD_S = 0.25
# Bits of the reasons for which clocks are low (nvmlClocksEventReasons).
_REASONS = {
    0x1: "idle",
    0x2: "applications-clocks",
    0x4: "power-cap",
    0x8: "hardware-slowdown",
    0x10: "sync-boost",
    0x20: "software-thermal",
    0x40: "hardware-thermal",
    0x80: "power-brake",
    0x100: "display-clocks",
    0x200: "board-limit",
    0x400: "reliability",
}
_GONE = (
    "NVML_ERROR_UNINITIALIZED",
    "NVML_ERROR_DRIVER_NOT_LOADED",
    "NVML_ERROR_LIB_RM_VERSION_MISMATCH",
    "NVML_ERROR_UNKNOWN",
    "NVML_ERROR_LIBRARY_NOT_FOUND",
)
_LOST = ("NVML_ERROR_GPU_IS_LOST", "NVML_ERROR_RESET_REQUIRED", "NVML_ERROR_NOT_FOUND", "NVML_ERROR_GPU_NOT_FOUND")


class NvmlDriver(HandleDriver):
    driver = "nvml"
    period_s = PERIOD_S
    reports_locked_clock = False

    def __init__(self) -> None:
        self._nvml = _library()
        self._kinds = _error_kinds(self._nvml)
        super().__init__(self._nvml.NVMLError)

    def limits(self, uuid: str) -> GpuLimits:
        """Return the limits; a GPU without a reported range has no limit to set."""
        nvml = self._nvml
        min_mw, max_mw = self._optional(uuid, nvml.nvmlDeviceGetPowerManagementLimitConstraints) or (None, None)
        return GpuLimits(
            min_w=_thousandth(min_mw),
            max_w=_thousandth(max_mw),
            default_w=_thousandth(self._optional(uuid, nvml.nvmlDeviceGetPowerManagementDefaultLimit)),
            clocks_mhz=self._clocks(uuid),
        )

    def read(self, uuid: str) -> GpuReading:
        """Return the telemetry; the power is the driver's mean over its own window, and is required."""
        nvml = self._nvml
        power_mw = self._call(uuid, nvml.nvmlDeviceGetPowerUsage)
        energy_mj = self._optional(uuid, nvml.nvmlDeviceGetTotalEnergyConsumption)
        if energy_mj is not None:
            self._note_energy(uuid, energy_mj)
        rates = self._optional(uuid, nvml.nvmlDeviceGetUtilizationRates)
        return GpuReading(
            power_w=power_mw / 1000,
            energy_j=_thousandth(energy_mj),
            temperature_c=self._temperature(uuid),
            sm_clock_mhz=self._optional(uuid, partial(_swapped, nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_SM)),
            memory_clock_mhz=self._optional(uuid, partial(_swapped, nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_MEM)),
            utilization=None if rates is None else rates.gpu / 100,
            slowed_by=self._slowed_by(uuid),
            ecc_corrected=self._ecc(uuid, nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED),
            ecc_uncorrected=self._ecc(uuid, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
        )

    def enforced(self, uuid: str) -> Caps:
        """Return the enforced limit; NVML does not report the locked clock."""
        limit_mw = self._call(uuid, self._nvml.nvmlDeviceGetEnforcedPowerLimit)
        return Caps(power_limit_w=limit_mw / 1000)

    def configured(self, uuid: str) -> Caps:
        """Return the limit without out-of-band limits, which the agent does not restore."""
        return Caps(power_limit_w=self._call(uuid, self._nvml.nvmlDeviceGetPowerManagementLimit) / 1000)

    def set_power_limit(self, uuid: str, watts: float | None) -> None:
        """Set the limit in milliwatts."""
        if watts is None:
            limit_mw = self._call(uuid, self._nvml.nvmlDeviceGetPowerManagementDefaultLimit)
        else:
            limit_mw = round(watts * 1000)
        self._call(uuid, partial(_swapped, self._nvml.nvmlDeviceSetPowerManagementLimit, limit_mw))

    def lock_clock(self, uuid: str, mhz: int | None) -> None:
        """Allow any clock up to this one: the lowest clock is the lower bound, so that an idle GPU still idles."""
        if mhz is None:
            self._call(uuid, self._nvml.nvmlDeviceResetGpuLockedClocks)
            return
        lowest = self._clocks(uuid)[-1:] or (mhz,)
        self._call(uuid, lambda handle: self._nvml.nvmlDeviceSetGpuLockedClocks(handle, min(lowest[0], mhz), mhz))

    def close(self) -> None:
        """Close the library, so that the driver can be unloaded."""
        try:
            self._nvml.nvmlShutdown()
        except self._nvml.NVMLError as error:
            if self._kinds.get(error.value) is not DriverGoneError:
                raise self._translated(error) from error

    def _opened(self) -> list[tuple[GpuIdentity, Any]]:
        nvml = self._nvml
        nvml.nvmlInit()
        return [one for at in range(nvml.nvmlDeviceGetCount()) if (one := self._opened_gpu(at)) is not None]

    def _opened_gpu(self, at: int) -> tuple[GpuIdentity, Any] | None:
        """Return None for a GPU that has fallen off the bus."""
        try:
            handle = self._nvml.nvmlDeviceGetHandleByIndex(at)
            return _identity(self._nvml, handle), handle
        except self._nvml.NVMLError as error:
            if self._kinds.get(error.value) is GpuLostError:
                return None
            raise

    def _clocks(self, uuid: str) -> tuple[int, ...]:
        """Return the clocks at the highest memory clock, at which GPUs in data centres run."""
        nvml = self._nvml
        memory = self._optional(uuid, nvml.nvmlDeviceGetSupportedMemoryClocks)
        if not memory:
            return ()
        clocks = self._optional(uuid, partial(_swapped, nvml.nvmlDeviceGetSupportedGraphicsClocks, max(memory)))
        return tuple(sorted(set(clocks or ()), reverse=True))

    def _temperature(self, uuid: str) -> Any:
        """Return the temperature by the newer function; older drivers have the older one."""
        for name in ("nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature"):
            if hasattr(self._nvml, name):
                call = partial(_swapped, getattr(self._nvml, name), self._nvml.NVML_TEMPERATURE_GPU)
                found = self._optional(uuid, call)
                if found is not None:
                    return found
        return None

    def _slowed_by(self, uuid: str) -> tuple[str, ...]:
        for name in ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"):
            bits = self._optional(uuid, getattr(self._nvml, name)) if hasattr(self._nvml, name) else None
            if bits is not None:
                return tuple(reason for bit, reason in _REASONS.items() if bits & bit)
        return ()

    def _ecc(self, uuid: str, kind: int) -> Any:
        """Return the errors since the driver was loaded."""
        count, counter = self._nvml.nvmlDeviceGetTotalEccErrors, self._nvml.NVML_VOLATILE_ECC
        return self._optional(uuid, lambda handle: count(handle, kind, counter))

    def _translated(self, error: Any) -> GpuError:
        return self._kinds.get(error.value, GpuError)(f"NVML: {error}")


def _library() -> Any:
    try:
        return importlib.import_module("pynvml")
    except ImportError as error:
        raise DriverGoneError("NVIDIA GPUs need an extra: pip install 'fleetwright[gpu]'") from error


def _error_kinds(nvml: Any) -> dict[int, type[GpuError]]:
    kinds: dict[int, type[GpuError]] = {
        nvml.NVML_ERROR_NO_PERMISSION: NoPermissionError,
        nvml.NVML_ERROR_NOT_SUPPORTED: NotSupportedError,
        nvml.NVML_ERROR_FUNCTION_NOT_FOUND: NotSupportedError,  # an older driver
        nvml.NVML_ERROR_INVALID_ARGUMENT: OutOfRangeError,
    }
    kinds |= {getattr(nvml, name): DriverGoneError for name in _GONE}
    kinds |= {getattr(nvml, name): GpuLostError for name in _LOST if hasattr(nvml, name)}
    return kinds


def _identity(nvml: Any, handle: Any) -> GpuIdentity:
    bus_id = nvml.nvmlDeviceGetPciInfo_v3(handle).busId
    return GpuIdentity(
        uuid=nvml.nvmlDeviceGetUUID(handle),
        name=nvml.nvmlDeviceGetName(handle),
        bus_id=bus_id.decode() if isinstance(bus_id, bytes) else bus_id,
    )


def _swapped(call: Callable[..., Any], argument: Any, handle: Any) -> Any:
    return call(handle, argument)


def _thousandth(value: float | None) -> float | None:
    return None if value is None else value / 1000
