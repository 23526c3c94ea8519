"""The GPUs of a node as a watcher sees them: looked at, never written to."""

from collections.abc import Callable
from typing import Final

from deploy.node_agent.gpu.errors import GpuError
from deploy.node_agent.gpu.factory import DRIVERS, DriverName, DriverOptions, Simulation, node_of, open_gpus
from deploy.node_agent.gpu.interface import Gpus
from deploy.node_agent.gpu.node import GpuNode
from deploy.ray_actor.messages import GpuLook, WatchOrder
from fleet.errors import UnknownNameError
from fleet.gpus import builtin_gpus

ANY_BOARD: Final = "H100-SXM"
FULL_CLOCK: Final = 1.0  # no guard is heard here, and nothing is held without one

Opened = Callable[..., Gpus]


def gpus_of(order: WatchOrder, *, opened: Opened = open_gpus) -> GpuNode | None:
    """None where there is nothing to look at.  Raises GpuError where there should be, and no driver answers."""
    if order.settings.gpus is GpuLook.NONE or order.gpus < 1:
        return None
    gpus = _simulated(order, opened) if order.settings.gpus is GpuLook.SIMULATED else _first_driver(opened)
    return node_of(gpus, acting=False, state_file=None, safe_share=FULL_CLOCK)


def _simulated(order: WatchOrder, opened: Opened) -> Gpus:
    return opened(DriverName.SIMULATED, DriverOptions(simulation=_simulation(order)))


def _first_driver(opened: Opened) -> Gpus:
    reasons = []
    for name in (name for name, driver in DRIVERS.items() if driver.in_band):
        try:
            return opened(name, DriverOptions())
        except GpuError as error:
            reasons.append(f"{name}: {error}")
    raise GpuError("; ".join(reasons))


def _simulation(order: WatchOrder) -> Simulation:
    """Simulate boards of the type in Ray's label, if the catalogue has it."""
    try:
        board = builtin_gpus().get(order.accelerator or ANY_BOARD).name
    except UnknownNameError:
        board = ANY_BOARD
    return Simulation(server=order.node_name, board=board, count=order.gpus, seed=order.index)
