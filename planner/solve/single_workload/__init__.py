"""The fast path of P1 and P3 (docs/formulation.md, section 8): workloads that share nothing, each over few counts.

`tables_of` says whether a problem is of that kind; `cheapest` solves one table, `most_even` spreads the requests.  All
other problems, and the second opinion, are `planner.solve.ilp`'s.
"""

from planner.solve.single_workload.load_balance import is_plain, most_even
from planner.solve.single_workload.search import Mix, cheapest
from planner.solve.single_workload.table import Table, replicas_per_unit, tables_of

__all__ = ["Mix", "Table", "cheapest", "is_plain", "most_even", "replicas_per_unit", "tables_of"]
