"""Actuators without hardware: what a guard is tried against before it is let near a fleet."""

from power.actuation.faults import ActuatorFaults
from power.actuation.simulated import SimulatedActuator

__all__ = ["ActuatorFaults", "SimulatedActuator"]
