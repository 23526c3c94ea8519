"""The power tree: feeds, their limits by period, and the servers on them.  Start at PowerTree; file format:
docs/explanation/power/caps.md.
"""

from power.tree.document import PowerTree
from power.tree.elements import Correlation, Feed, Load, ServerGroup, Training
from power.tree.from_topology import feeds_of
from power.tree.hierarchy import Hierarchy, ServerClass

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
