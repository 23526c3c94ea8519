"""Ranks that are gone, and which went first.  docs/faults/hangs.md"""

from faults.crashes.crashes import crashes
from faults.crashes.settings import CrashSettings

__all__ = ["CrashSettings", "crashes"]
