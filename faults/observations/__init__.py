"""One typed stream of what was observed, whoever observed it.  Formats and traps: docs/faults/observations.md."""

from faults.observations.kinds import (
    Collective,
    Counts,
    Device,
    Flight,
    Heartbeat,
    Look,
    Pass,
    Port,
    Probe,
    Process,
    Socket,
    Values,
)
from faults.observations.observation import Observation

__all__ = [
    "Collective",
    "Counts",
    "Device",
    "Flight",
    "Heartbeat",
    "Look",
    "Observation",
    "Pass",
    "Port",
    "Probe",
    "Process",
    "Socket",
    "Values",
]
