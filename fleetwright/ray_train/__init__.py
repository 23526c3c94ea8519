"""Callbacks for Ray Train v2 jobs.

`WatchWorkers` records the collectives of every worker.  `RunStatusCallback` keeps the run's status actor up to date for
remediation and fault monitoring.  `ResizableTrainer` makes an elastic run follow a requested number of workers.
Names are imported on first use: the types of `fleetwright.ray_train.run_status` need no Ray.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fleetwright.ray_train.collectives import WatchWorkers
    from fleetwright.ray_train.elastic import ResizableTrainer
    from fleetwright.ray_train.status_callback import RunStatusCallback

__all__ = ["ResizableTrainer", "RunStatusCallback", "WatchWorkers"]


def __getattr__(name: str) -> Any:
    match name:
        case "WatchWorkers":
            from fleetwright.ray_train import collectives  # noqa: PLC0415 - on first use, as the others

            return getattr(collectives, name)
        case "ResizableTrainer":
            from fleetwright.ray_train import elastic  # noqa: PLC0415

            return getattr(elastic, name)
        case "RunStatusCallback":
            from fleetwright.ray_train import status_callback  # noqa: PLC0415

            return getattr(status_callback, name)
        case _:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
