"""The fast path of P1 and P3 (docs/formulation.md, section 8): workloads that share nothing, each over few counts.

`tables_of` says whether a problem is of that kind; `cheapest` solves one table, `most_even` spreads the requests.  All
other problems, and the second opinion, are `planner.ilp`'s.
"""

from planner.exact.evenness import is_plain, most_even
from planner.exact.search import Mix, cheapest
from planner.exact.table import Table, replicas_per_unit, tables_of

__all__ = ["Mix", "Table", "cheapest", "is_plain", "most_even", "replicas_per_unit", "tables_of"]
