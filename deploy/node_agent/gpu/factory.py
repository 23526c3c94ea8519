"""The registry of GPU drivers, and the functions that open one.

To add a vendor, write an implementation of `GpuDriver` and register it in `DRIVERS`: the command line, the Ray actor
and a test of the chart read the names from there.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import numpy as np

from deploy.node_agent.gpu.cap_controller import CapController
from deploy.node_agent.gpu.errors import DriverGoneError, GpuError
from deploy.node_agent.gpu.interface import GpuDriver
from deploy.node_agent.gpu.node import GpuNode, WorkloadPhases
from deploy.node_agent.gpu.state_file import StateFile
from fleet.gpus import builtin_gpus


class DriverName(StrEnum):
    """The drivers, by the name on the command line."""

    SIMULATED = "simulated"
    NVML = "nvml"
    AMD = "amd"
    REDFISH = "redfish"


@dataclass(frozen=True, slots=True, kw_only=True)
class RedfishAccess:
    url: str | None = None
    login: Path | None = None  # USER:PASSWORD in one line
    authority: Path | None = None
    basic: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    server: str = "sim"
    board: str = "H100-SXM"
    count: int = 8
    load: float = 1.0
    ignored_share: float = 0.0
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverOptions:
    """The options of all drivers; each takes its own."""

    redfish: RedfishAccess = field(default_factory=RedfishAccess)
    simulation: Simulation = field(default_factory=Simulation)


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """A driver of one vendor or path; `open` imports its packages and raises GpuError if there is nothing to open."""

    open: Callable[[DriverOptions], GpuDriver]
    in_band: bool = False  # reads the GPUs of the machine that it runs on
    is_real: bool = True


def open_gpus(name: DriverName, options: DriverOptions) -> GpuDriver:
    return DRIVERS[name].open(options)


def node_of(gpus: GpuDriver, *, acting: bool, state_file: Path | None, safe_share: float) -> GpuNode:
    """Build the node of these GPUs; its thread is not started yet."""
    stored = StateFile(state_file)
    if acting:
        stored.check_writable()
    cap_controller = CapController(gpus=gpus, state_file=stored, acting=acting, safe_share=safe_share)
    return GpuNode(cap_controller=cap_controller, phases=WorkloadPhases())


def _nvml(_options: DriverOptions) -> GpuDriver:
    from deploy.node_agent.gpu.nvml import NvmlDriver  # noqa: PLC0415 - needs an extra

    return _with_gpus(NvmlDriver())


def _amd(_options: DriverOptions) -> GpuDriver:
    from deploy.node_agent.gpu.amd import AmdDriver  # noqa: PLC0415 - needs AMD's package

    return _with_gpus(AmdDriver())


def _with_gpus(gpus: GpuDriver) -> GpuDriver:
    if not gpus.identities():
        raise DriverGoneError(f"{gpus.driver}: the driver is loaded and shows no GPU")
    return gpus


def _redfish(options: DriverOptions) -> GpuDriver:
    from deploy.node_agent.gpu.redfish import RedfishDriver  # noqa: PLC0415
    from deploy.node_agent.gpu.redfish_client import RedfishClient, read_login  # noqa: PLC0415

    access = options.redfish
    if access.url is None:
        raise GpuError("needs --redfish-url")
    login = read_login(access.login) if access.login else None
    client = RedfishClient(access.url, login=login, basic=access.basic, authority=access.authority)
    try:
        return RedfishDriver(client)
    except GpuError:
        client.close()
        raise


def _simulated(options: DriverOptions) -> GpuDriver:
    from deploy.node_agent.gpu.simulated import SimulatedDriver  # noqa: PLC0415

    simulation = options.simulation
    return SimulatedDriver(
        spec=builtin_gpus().get(simulation.board),
        count=simulation.count,
        now_s=time.monotonic,
        rng=np.random.default_rng(simulation.seed),
        name=simulation.server,
        load=simulation.load,
        ignored_share=simulation.ignored_share,
    )


DRIVERS: Mapping[DriverName, Driver] = {
    DriverName.SIMULATED: Driver(open=_simulated, is_real=False),
    DriverName.NVML: Driver(open=_nvml, in_band=True),
    DriverName.AMD: Driver(open=_amd, in_band=True),
    DriverName.REDFISH: Driver(open=_redfish),
}
