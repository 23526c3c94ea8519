"""The interface of the detectors of a live job, and the description of the job."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeGuard

from faults.diagnosis import Diagnosis
from faults.observations import Observation

MAX_NAME: Final = 256  # characters


@dataclass(frozen=True, slots=True)
class JobFabric:
    """Switches of the job's fabric, as configured by the operator."""

    leaves: tuple[str, ...]  # name of the leaf switch of each node


@dataclass(frozen=True, slots=True)
class Job:
    """Description of a job, known before any observation."""

    nodes: int
    rank_node: tuple[int, ...]  # the node of each rank
    groups: tuple[tuple[int, ...], ...] = ()  # ranks of each communicator; empty: one communicator of all ranks
    look_period_s: float = 0.25
    heartbeat_s: float = 0.5
    fabric: JobFabric | None = None  # None: unknown

    def only_rank_on(self, node: int) -> int | None:
        """Return the rank of a node that has only one."""
        return self.rank_node.index(node) if self.rank_node.count(node) == 1 else None


def is_leaves(found: Any, *, nodes: int) -> TypeGuard[Sequence[str]]:
    """Return whether the value names the leaf switch of each node."""
    names = isinstance(found, list | tuple) and len(found) == nodes
    return names and all(isinstance(name, str) and 0 < len(name) <= MAX_NAME for name in found)


def is_indices(found: Any, *, below: int) -> TypeGuard[list[int]]:
    return isinstance(found, list) and all(type(index) is int and 0 <= index < below for index in found)


class Detector(Protocol):
    """Takes observations in the order in which they became known, and gives diagnoses for a given time."""

    def observe(self, observation: Observation) -> None:
        """Add an observation.  Never raises: an unusable observation is ignored."""
        ...

    def evaluate(self, now_s: float) -> Sequence[Diagnosis]:
        """Return the active faults at this time."""
        ...
