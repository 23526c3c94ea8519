"""Callbacks for Ray Train v2 jobs.

`WatchWorkers` records the collectives of every worker.  `RunStatusCallback` keeps the run's status actor up to date for
remediation and fault monitoring.  `ResizableTrainer` makes an elastic run follow a requested number of workers.
Names are imported on first use: `fleetwright.ray_train.run_status` needs Ray, but not Ray Train.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fleetwright.ray_train.collectives import WatchWorkers
    from fleetwright.ray_train.elastic import ResizableTrainer
    from fleetwright.ray_train.status_callback import RunStatusCallback

_MODULES = {"WatchWorkers": "collectives", "ResizableTrainer": "elastic", "RunStatusCallback": "status_callback"}

__all__ = ["ResizableTrainer", "RunStatusCallback", "WatchWorkers"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
