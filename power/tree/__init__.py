"""The power tree: feeds, their limits by period, and the servers on them.  Start at PowerTree; file format:
docs/explanation/power/caps.md.
"""

from power.tree.document import PowerTree
from power.tree.elements import Feed, feeds_of

__all__ = [
    "Feed",
    "PowerTree",
    "feeds_of",
]
