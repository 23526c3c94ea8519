"""Which feed hangs on which, what each may carry hour by hour, and the servers on them.  Start at PowerTree; written
form: docs/power/caps.md."""

from power.tree.document import PowerTree
from power.tree.hierarchy import Hierarchy, ServerClass
from power.tree.parts import Correlation, Feed, Load, ServerGroup, Training
from power.tree.sites import feeds_of

__all__ = [
    "Correlation",
    "Feed",
    "Hierarchy",
    "Load",
    "PowerTree",
    "ServerClass",
    "ServerGroup",
    "Training",
    "feeds_of",
]
