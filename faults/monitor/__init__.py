"""All detectors as one: observations in, one verdict per fault out.  docs/faults/hangs.md"""

from faults.monitor.dedup import Key, key_of
from faults.monitor.monitor import FaultMonitor
from faults.monitor.settings import MonitorSettings

__all__ = ["Key", "Watcher", "WatcherSettings", "key_of"]
