"""What the parts of Fleetwright in one Train controller's process share: Ray copies each of them there on its own."""

from typing import Any


class TrainProcess:
    """At most one run per process."""

    status_actor: Any = None
    workers: int = 0  # of the group that trains
    checkpoints: int = 0  # since the process began
