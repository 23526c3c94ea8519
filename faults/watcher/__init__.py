"""All detectors as one: observations in, one verdict per fault out.  docs/faults/hangs.md"""

from faults.watcher.faults_seen import Key, key_of
from faults.watcher.settings import WatcherSettings
from faults.watcher.watcher import Watcher

__all__ = ["Key", "Watcher", "WatcherSettings", "key_of"]
