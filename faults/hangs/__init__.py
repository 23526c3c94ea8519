"""A job that stands still, and who keeps it: sockets, processes and the wait-for graph.  docs/faults/hangs.md"""

from faults.hangs.hangs import hangs
from faults.hangs.settings import HangSettings
from faults.hangs.wait_for_graph import Memberships, Waits, behind, wait_for

__all__ = ["HangSettings", "Memberships", "Waits", "behind", "hangs", "wait_for"]
