"""All detectors as one: observations in, one verdict per fault out.  docs/faults/hangs.md"""

from faults.watcher.settings import WatcherSettings
from faults.watcher.watcher import Watcher

__all__ = ["Watcher", "WatcherSettings"]
