"""Actuators without hardware: what a guard is tried against before it is let near a fleet."""

from power.testing.faults import ActuatorFaults
from power.testing.simulated_actuator import SimulatedActuator

__all__ = ["ActuatorFaults", "SimulatedActuator"]
