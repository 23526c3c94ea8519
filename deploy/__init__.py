"""What touches the world: the controller, the actuators it drives, and what it counts."""

from deploy.actuator import Actuator, Observation, Step
from deploy.clock import Clock
from deploy.controller import Controller, ControllerSettings
from deploy.discovery import UnusableSourceError, discover_kubernetes, discover_ray
from deploy.errors import ActuationError, PlanUnusableError, UnreachableError
from deploy.metrics import ControllerMetrics
from deploy.ray_serve import RayServeActuator, ray_serve_actuators

__all__ = [
    "ActuationError",
    "Actuator",
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
]
