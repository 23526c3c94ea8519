"""What every detector of a live job can do; the watcher feeds them all and asks them all."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeGuard

from faults.diagnosis import Diagnosis
from faults.observations import Observation

MAX_NAME: Final = 256  # characters


@dataclass(frozen=True, slots=True)
class JobFabric:
    """What a job's operator knows of the switches."""

    leaves: tuple[str, ...]  # the leaf switch of each node, by name


@dataclass(frozen=True, slots=True)
class Job:
    """What is known of a job before anything is observed."""

    nodes: int
    rank_node: tuple[int, ...]  # the node of each rank
    groups: tuple[tuple[int, ...], ...] = ()  # ranks of each communicator; empty: one of all
    look_period_s: float = 0.25
    heartbeat_s: float = 0.5
    fabric: JobFabric | None = None  # not known


def is_leaves(found: Any, *, nodes: int) -> TypeGuard[Sequence[str]]:
    """Whether it names the leaf switch of each node."""
    names = isinstance(found, list | tuple) and len(found) == nodes
    return names and all(isinstance(name, str) and 0 < len(name) <= MAX_NAME for name in found)


class Detector(Protocol):
    """Sees observations in the order in which they became known; judges when asked, by the given time."""

    def observe(self, observation: Observation) -> None:
        """Take one in.  Never raises: what cannot be used is left."""
        ...

    def evaluate(self, now_s: float) -> Sequence[Diagnosis]:
        """The faults that are believed now, each for as long as it lasts."""
        ...
