"""The times among an observation's values, to move the observation to another clock."""

from collections.abc import Mapping
from typing import Any

from faults.observations.kinds import Collective, FlightProgress, PointToPoint, Probe, ProbeReturned, Values
from faults.observations.observation import Observation

MOMENTS: Mapping[type[Values], tuple[str, ...]] = {
    Collective: ("arrived_s", "finished_s"),
    PointToPoint: ("called_s", "received_s", "sent_s"),
    Probe: ("sent_s", "received_s"),
    ProbeReturned: ("sent_s", "received_s"),
    FlightProgress: ("since_s",),
}


def on_clock_of(observation: Observation, zero_s: float) -> Observation:
    """Return the observation in seconds after `zero_s`."""
    values: Any = observation.values
    known = {name: getattr(values, name) for name in MOMENTS.get(type(values), ())}
    moved = {name: at_s - zero_s for name, at_s in known.items() if at_s is not None}
    return observation._replace(at_s=observation.at_s - zero_s, values=values._replace(**moved) if moved else values)


def moments_of(observation: Observation) -> tuple[float, ...]:
    """Return all times: when the observation became known, and those in its values."""
    inside = (getattr(observation.values, name) for name in MOMENTS.get(type(observation.values), ()))
    return observation.at_s, *(at_s for at_s in inside if at_s is not None)
