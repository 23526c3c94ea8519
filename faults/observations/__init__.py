"""One typed stream of observations, independent of their source.  Formats: docs/explanation/faults/observations.md"""

from faults.observations.jsonl import from_line, from_list, to_line
from faults.observations.kinds import (
    Collective,
    DeviceCounter,
    ExternalFinding,
    FlightProgress,
    Heartbeat,
    OperationCounts,
    OperationDuration,
    PointToPoint,
    Port,
    Probe,
    ProbeReturned,
    Process,
    Socket,
    SocketPoll,
    Values,
)
from faults.observations.observation import Observation
from faults.observations.probe_dedup import ProbeDeduplicator
from faults.observations.timestamps import on_clock_of

__all__ = [
    "Collective",
    "DeviceCounter",
    "ExternalFinding",
    "FlightProgress",
    "Heartbeat",
    "Observation",
    "OperationCounts",
    "OperationDuration",
    "PointToPoint",
    "Port",
    "Probe",
    "ProbeDeduplicator",
    "ProbeReturned",
    "Process",
    "Socket",
    "SocketPoll",
    "Values",
    "from_line",
    "from_list",
    "on_clock_of",
    "to_line",
]
