"""The fast method for workloads that share nothing (docs/explanation/planner/formulation.md, section 8).

`tables_of` tests whether it applies, `cheapest` solves P1 of one workload, and `min_max_load` solves P3.
"""

from planner.solve.single_workload.program import is_plain, min_max_load
from planner.solve.single_workload.search import cheapest
from planner.solve.single_workload.table import Table, replicas_per_unit, tables_of

__all__ = ["Table", "cheapest", "is_plain", "min_max_load", "replicas_per_unit", "tables_of"]
