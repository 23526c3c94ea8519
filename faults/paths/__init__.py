"""A job's rings over a leaf-spine fabric: which path each connection takes.  docs/faults/paths.md"""

from faults.paths.job import TrafficJob
from faults.paths.plan import Plan, Repair, make_plan, repair
from faults.paths.ports import Probe, Row, choices, probes, read_probed
from faults.paths.report import Hashed, Load, hashed, planned
from faults.paths.traffic import Traffic, traffic_of

__all__ = [
    "Hashed",
    "Load",
    "Plan",
    "Probe",
    "Repair",
    "Row",
    "Traffic",
    "TrafficJob",
    "choices",
    "hashed",
    "make_plan",
    "planned",
    "probes",
    "read_probed",
    "repair",
    "traffic_of",
]
