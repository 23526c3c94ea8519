"""The GPUs of a node as a node actor reads them."""

from collections.abc import Callable
from typing import Final

from deploy.node_agent.gpu.errors import GpuError
from deploy.node_agent.gpu.factory import DRIVERS, DriverName, DriverOptions, Simulation, node_of, open_gpus
from deploy.node_agent.gpu.interface import GpuDriver
from deploy.node_agent.gpu.node import GpuNode
from deploy.ray_actor.messages import GpuSource, NodeActorConfig
from fleet.errors import UnknownNameError
from fleet.gpus import builtin_gpus

ANY_BOARD: Final = "H100-SXM"
FULL_CLOCK: Final = 1.0  # a node actor has no guard and sets no clock

Opened = Callable[..., GpuDriver]


def gpus_of(config: NodeActorConfig, *, opened: Opened = open_gpus) -> GpuNode | None:
    """Return None where there is no GPU to read.  Raise GpuError where there is one and no driver responds."""
    if config.settings.gpus is GpuSource.NONE or config.gpus < 1:
        return None
    gpus = _simulated(config, opened) if config.settings.gpus is GpuSource.SIMULATED else _first_driver(opened)
    return node_of(gpus, acting=False, state_file=None, safe_share=FULL_CLOCK)


def _simulated(config: NodeActorConfig, opened: Opened) -> GpuDriver:
    return opened(DriverName.SIMULATED, DriverOptions(simulation=_simulation(config)))


def _first_driver(opened: Opened) -> GpuDriver:
    reasons = []
    for name in (name for name, driver in DRIVERS.items() if driver.in_band):
        try:
            return opened(name, DriverOptions())
        except GpuError as error:
            reasons.append(f"{name}: {error}")
    raise GpuError("; ".join(reasons))


def _simulation(config: NodeActorConfig) -> Simulation:
    """Simulate boards of the type in Ray's label, if the catalogue has it."""
    try:
        board = builtin_gpus().get(config.accelerator or ANY_BOARD).name
    except UnknownNameError:
        board = ANY_BOARD
    return Simulation(server=config.node_name, board=board, count=config.gpus, seed=config.index)
