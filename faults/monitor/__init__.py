"""The fault monitor: all detectors over one job state, with one diagnosis per fault.

`FaultMonitor` is the entry, for `faults.replay` and for the process `deploy.fault_monitor`.
docs/explanation/faults/hangs.md
"""

from faults.monitor.dedup import Key, key_of
from faults.monitor.monitor import FaultMonitor
from faults.monitor.settings import MonitorSettings

__all__ = ["FaultMonitor", "Key", "MonitorSettings", "key_of"]
