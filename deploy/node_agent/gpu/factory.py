"""From what an agent was told to the GPUs that it keeps.  What a driver needs is loaded for that driver only."""

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from deploy.node_agent.gpu.cap_controller import Keeper
from deploy.node_agent.gpu.errors import DriverGoneError, GpuError
from deploy.node_agent.gpu.interface import Gpus
from deploy.node_agent.gpu.node import GpuNode
from deploy.node_agent.gpu.state_file import Memory
from deploy.node_agent.gpu.workload_phase import Phases
from fleet.gpus import builtin_gpus


@dataclass(frozen=True, slots=True, kw_only=True)
class RedfishAccess:
    """How a BMC is reached."""

    url: str | None = None
    login: Path | None = None  # USER:PASSWORD in one line
    authority: Path | None = None
    basic: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """What GPUs that are not there are like."""

    server: str
    board: str
    count: int
    ignored_share: float = 0.0
    seed: int = 0


def open_gpus(driver: str, *, redfish: RedfishAccess, simulation: Simulation) -> Gpus:
    """Raises GpuError where there is nothing to open."""
    if driver == "nvml":
        from deploy.node_agent.gpu.nvml import NvmlGpus  # noqa: PLC0415 - an extra stands behind it

        return _not_none(NvmlGpus())
    if driver == "amd":
        from deploy.node_agent.gpu.amd import AmdGpus  # noqa: PLC0415 - AMD's own package, where it is installed

        return _not_none(AmdGpus())
    if driver == "simulated-gpus":
        return _simulated(simulation)
    if driver == "redfish":
        return _redfish(redfish)
    raise GpuError(f"unknown driver {driver!r}")


def node_of(gpus: Gpus, *, acting: bool, state_file: Path | None, safe_share: float) -> GpuNode:
    """The node that keeps them; its thread is not started yet."""
    memory = Memory(state_file)
    if acting:
        memory.check_writable()
    keeper = Keeper(gpus=gpus, memory=memory, acting=acting, safe_share=safe_share)
    return GpuNode(keeper=keeper, phases=Phases())


def _not_none(gpus: Gpus) -> Gpus:
    if not gpus.identities():
        raise DriverGoneError(f"{gpus.driver}: the driver is there and shows no GPU")
    return gpus


def _redfish(access: RedfishAccess) -> Gpus:
    from deploy.node_agent.gpu.redfish import RedfishGpus  # noqa: PLC0415
    from deploy.node_agent.gpu.redfish_client import RedfishClient, read_login  # noqa: PLC0415

    if access.url is None:
        raise GpuError("needs --redfish-url")
    login = read_login(access.login) if access.login else None
    client = RedfishClient(access.url, login=login, basic=access.basic, authority=access.authority)
    try:
        return RedfishGpus(client)
    except GpuError:
        client.close()
        raise


def _simulated(simulation: Simulation) -> Gpus:
    from deploy.node_agent.gpu.simulated import SimulatedFaults, SimulatedGpus  # noqa: PLC0415

    return SimulatedGpus(
        spec=builtin_gpus().get(simulation.board),
        count=simulation.count,
        now_s=time.monotonic,
        rng=np.random.default_rng(simulation.seed),
        name=simulation.server,
        faults=SimulatedFaults(ignored_share=simulation.ignored_share),
    )
