"""Hangs: finds the process, link or rank that a stalled job waits for, from sockets, processes and the wait-for graph.

`hangs` is the entry; the fault monitor calls it.  docs/explanation/faults/hangs.md
"""

from faults.hangs.dumps import DumpFindings, Wait
from faults.hangs.hangs import findings_of_dumps, hangs
from faults.hangs.settings import HangSettings

__all__ = ["DumpFindings", "HangSettings", "Wait", "findings_of_dumps", "hangs"]
