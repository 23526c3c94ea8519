"""The path of every connection of a job's rings in a leaf-spine fabric.  docs/explanation/faults/path-planning.md"""

from faults.path_planning.job import TrafficJob
from faults.path_planning.plan import Plan, Repair, make_plan, repair
from faults.path_planning.ports import Row, choices, probes, read_probed
from faults.path_planning.report import FabricLoad, Hashed, hashed, planned
from faults.path_planning.traffic import Traffic, traffic_of

__all__ = [
    "FabricLoad",
    "Hashed",
    "Plan",
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
