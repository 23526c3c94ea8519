"""Crashes: finds the rank that vanished first.  docs/explanation/faults/hangs.md"""

from faults.crashes.crashes import crashes
from faults.crashes.settings import CrashSettings

__all__ = ["CrashSettings", "crashes"]
