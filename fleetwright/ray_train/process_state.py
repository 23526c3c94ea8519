"""State of one Train controller process, shared by our callbacks: Ray copies each of them there separately."""

from typing import Any


class TrainProcess:
    """At most one run per process."""

    status_actor: Any = None
    workers: int = 0  # of the group that trains
    checkpoints: int = 0  # since the process began
