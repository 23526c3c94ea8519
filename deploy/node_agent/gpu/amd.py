"""AMD GPUs through ROCm's `amdsmi` package, imported at first use.

Facts (AMD SMI's Python reference and header): caps are in microwatts, energy in counts of a given number of
microjoules, clocks in MHz; writes need root and are not supported in virtual machines; a missing value is "N/A".
"""

import contextlib
import importlib
import io
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

PERIOD_S = 0.5
STEP_MHZ = 25  # AMD's clocks have no steps; these are offered
MICRO = 1e-6
MAX_W = 50_000.0  # of any board
_KINDS: dict[str, type[GpuError]] = {
    "NO_PERM": NoPermissionError,
    "NOT_SUPPORTED": NotSupportedError,
    "NOT_YET_IMPLEMENTED": NotSupportedError,
    "NO_DATA": NotSupportedError,
    "SETTING_UNAVAILABLE": NotSupportedError,
    "INVAL": OutOfRangeError,
    "INPUT_OUT_OF_BOUNDS": OutOfRangeError,
    "NOT_FOUND": GpuLostError,
    "IO": GpuLostError,
    "BUSY": GpuLostError,
    **dict.fromkeys(("NOT_INIT", "DRIVER_NOT_LOADED", "INIT_ERROR"), DriverGoneError),
}


class AmdDriver(HandleDriver):
    driver = "amd"
    period_s = PERIOD_S
    reports_locked_clock = True

    def __init__(self) -> None:
        self._smi = _library()
        status = self._smi.amdsmi_wrapper
        named = {f"AMDSMI_STATUS_{name}": kind for name, kind in _KINDS.items()}
        self._kinds = {getattr(status, name): kind for name, kind in named.items() if hasattr(status, name)}
        super().__init__(self._smi.AmdSmiException)

    def limits(self, uuid: str) -> GpuLimits:
        """Return clocks from the board's own range; none if the board reports no range."""
        cap = self._call(uuid, self._smi.amdsmi_get_power_cap_info)
        clock = self._optional(uuid, self._graphics_clock) or {}
        return GpuLimits(
            min_w=_micro(cap["min_power_cap"]),
            max_w=_micro(cap["max_power_cap"]),
            default_w=_micro(cap["default_power_cap"]),
            clocks_mhz=_steps(_number(clock.get("min_clk")), _number(clock.get("max_clk"))),
        )

    def read(self, uuid: str) -> GpuReading:
        """Return the present power of newer boards, the mean of older ones."""
        smi = self._smi
        power = self._call(uuid, smi.amdsmi_get_power_info)
        watts = (_watts(power.get(name)) for name in ("current_socket_power", "average_socket_power", "socket_power"))
        activity = self._optional(uuid, smi.amdsmi_get_gpu_activity) or {}
        busy = _number(activity.get("gfx_activity"))
        errors = self._optional(uuid, smi.amdsmi_get_gpu_total_ecc_count) or {}
        clock = self._optional(uuid, self._graphics_clock) or {}
        memory = self._optional(uuid, lambda handle: smi.amdsmi_get_clock_info(handle, smi.AmdSmiClkType.MEM)) or {}
        return GpuReading(
            power_w=next((each for each in watts if each is not None), None),
            energy_j=self._energy_j(uuid),
            temperature_c=self._optional(uuid, self._hotspot),
            sm_clock_mhz=_number(clock.get("clk")),
            memory_clock_mhz=_number(memory.get("clk")),
            utilization=None if busy is None else busy / 100,
            ecc_corrected=errors.get("correctable_count"),
            ecc_uncorrected=errors.get("uncorrectable_count"),
        )

    def enforced(self, uuid: str) -> Caps:
        """Return the power cap, and the top of the range in which the clock may move."""
        cap = self._call(uuid, self._smi.amdsmi_get_power_cap_info)
        top = _number((self._optional(uuid, self._graphics_clock) or {}).get("max_clk"))
        return Caps(_micro(cap["power_cap"]), None if top is None else int(top))

    def configured(self, uuid: str) -> Caps:
        """Return the enforced caps: the driver reports nothing else."""
        return self.enforced(uuid)

    def set_power_limit(self, uuid: str, watts: float | None) -> None:
        """Set the limit in microwatts, of the first sensor."""
        smi = self._smi
        wanted_w = self.limits(uuid).default_w if watts is None else watts
        if wanted_w is None:
            raise NotSupportedError(f"{uuid}: reports no default limit")
        self._call(uuid, lambda handle: smi.amdsmi_set_power_cap(handle, 0, round(wanted_w / MICRO)))

    def lock_clock(self, uuid: str, mhz: int | None) -> None:
        """Set the top of the clock range; without a clock, return to the driver's own choice."""
        smi = self._smi
        if mhz is None:
            auto = smi.AmdSmiDevPerfLevel.AUTO
            self._call(uuid, lambda handle: smi.amdsmi_set_gpu_perf_level(handle, auto))
        else:
            self._call(uuid, lambda handle: smi.amdsmi_set_gpu_clk_limit(handle, "sclk", "max", mhz))

    def close(self) -> None:
        with contextlib.suppress(self._smi.AmdSmiException):
            self._smi.amdsmi_shut_down()

    def _opened(self) -> list[tuple[GpuIdentity, Any]]:
        smi = self._smi
        smi.amdsmi_init()
        return [(_identity(smi, handle), handle) for handle in smi.amdsmi_get_processor_handles()]

    def _graphics_clock(self, handle: Any) -> Any:
        return self._smi.amdsmi_get_clock_info(handle, self._smi.AmdSmiClkType.GFX)

    def _hotspot(self, handle: Any) -> Any:
        smi = self._smi
        return smi.amdsmi_get_temp_metric(
            handle, smi.AmdSmiTemperatureType.HOTSPOT, smi.AmdSmiTemperatureMetric.CURRENT
        )

    def _energy_j(self, uuid: str) -> float | None:
        info = self._optional(uuid, self._smi.amdsmi_get_energy_count)
        if info is None:
            return None
        count = int(info["energy_accumulator"])
        self._note_energy(uuid, count)
        return float(count * info["counter_resolution"] * MICRO)

    def _translated(self, error: Any) -> GpuError:
        code = getattr(error, "err_code", None)
        info = error.get_error_info(detailed=False) if hasattr(error, "get_error_info") else str(error)
        return self._kinds.get(code, GpuError)(f"AMD SMI: {info}")


def _library() -> Any:
    """Import the package; without its library it prints and raises its own errors."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            return importlib.import_module("amdsmi")
    except ImportError as error:
        raise DriverGoneError("AMD GPUs need the package `amdsmi`, which comes with ROCm") from error
    except (KeyError, OSError, AttributeError) as error:
        raise DriverGoneError(f"AMD GPUs need libamd_smi.so of ROCm: {error}") from error


def _identity(smi: Any, handle: Any) -> GpuIdentity:
    return GpuIdentity(
        uuid=str(smi.amdsmi_get_gpu_device_uuid(handle)),
        name=str(smi.amdsmi_get_gpu_asic_info(handle)["market_name"]),
        bus_id=str(smi.amdsmi_get_gpu_device_bdf(handle)),
    )


def _steps(least: float | None, most: float | None) -> tuple[int, ...]:
    if not least or not most or most <= least:
        return ()
    return (*range(int(most), int(least), -STEP_MHZ), int(least))


def _micro(value: Any) -> float | None:
    number = _number(value)
    return None if number is None else number * MICRO


def _watts(value: Any) -> float | None:
    """Return None for a counter with all bits set, which not every version of the package turns into N/A."""
    number = _number(value)
    return None if number is None or number >= MAX_W else number


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
