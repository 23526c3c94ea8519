"""What touches the world: the controller, the actuators it drives, and what it counts; `engines`: inside the engines.

Names are looked up when they are used: an engine that loads `deploy.engines` need not load, nor have, the rest.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deploy.actuator import Actuator, Observation, Step
    from deploy.actuators import Actuators, reachable_actuators
    from deploy.clock import Clock
    from deploy.controller import Controller, ControllerSettings
    from deploy.discovery import UnusableSourceError, discover_kubernetes, discover_ray
    from deploy.errors import ActuationError, PlanUnusableError, UnreachableError
    from deploy.metrics import ControllerMetrics
    from deploy.ray_serve import RayServeActuator, ray_serve_actuators

_HOMES = {
    "deploy.actuator": ("Actuator", "Observation", "Step"),
    "deploy.actuators": ("Actuators", "reachable_actuators"),
    "deploy.clock": ("Clock",),
    "deploy.controller": ("Controller", "ControllerSettings"),
    "deploy.discovery": ("UnusableSourceError", "discover_kubernetes", "discover_ray"),
    "deploy.errors": ("ActuationError", "PlanUnusableError", "UnreachableError"),
    "deploy.metrics": ("ControllerMetrics",),
    "deploy.ray_serve": ("RayServeActuator", "ray_serve_actuators"),
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
