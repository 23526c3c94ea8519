"""What touches the world: the controller, the actuators it drives, and what it counts; `engines`: inside the engines.

Names are looked up when they are used: an engine that loads `deploy.engine_plugins` need not load, nor have, the rest.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deploy.actuators.base import Actuator, Observation, Step
    from deploy.actuators.ray_serve.actuator import RayServeActuator, ray_serve_actuators
    from deploy.actuators.registry import Actuators, reachable_actuators
    from deploy.common.clock import Clock
    from deploy.common.errors import ActuationError, PlanUnusableError, UnreachableError
    from deploy.common.topology_discovery import UnusableSourceError, discover_kubernetes, discover_ray
    from deploy.controller.controller import Controller, ControllerSettings
    from deploy.controller.metrics import ControllerMetrics

_HOMES = {
    "deploy.actuators.base": ("Actuator", "Observation", "Step"),
    "deploy.actuators.registry": ("Actuators", "reachable_actuators"),
    "deploy.common.clock": ("Clock",),
    "deploy.controller.controller": ("Controller", "ControllerSettings"),
    "deploy.common.topology_discovery": ("UnusableSourceError", "discover_kubernetes", "discover_ray"),
    "deploy.common.errors": ("ActuationError", "PlanUnusableError", "UnreachableError"),
    "deploy.controller.metrics": ("ControllerMetrics",),
    "deploy.actuators.ray_serve.actuator": ("RayServeActuator", "ray_serve_actuators"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "ActuationError",
    "Actuator",
    "Actuators",
    "Clock",
    "Controller",
    "ControllerMetrics",
    "ControllerSettings",
    "Observation",
    "PlanUnusableError",
    "RayServeActuator",
    "Step",
    "UnreachableError",
    "UnusableSourceError",
    "discover_kubernetes",
    "discover_ray",
    "ray_serve_actuators",
    "reachable_actuators",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)
