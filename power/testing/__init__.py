"""A simulated actuator of servers: tests of the guard and the simulated node agent run against it."""

from power.testing.simulated_actuator import ActuatorFaults, SimulatedActuator

__all__ = ["ActuatorFaults", "SimulatedActuator"]
