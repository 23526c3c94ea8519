"""One typed stream of what was observed, whoever observed it.  Formats and traps: docs/faults/observations.md."""

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
    "BothEnds",
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
    "ProbeReturned",
    "Process",
    "Socket",
    "Told",
    "Took",
    "Values",
    "from_line",
    "from_list",
    "on_clock_of",
    "to_line",
]
