"""The status of a training run: one named Ray actor per run.

The run's own Train controller keeps the actor up to date (`status_callback`) and ends it with itself: without the actor
there is no run.  Remediation, the fault monitor and the elastic policy read the actor and store nothing.  It runs on
the controller's node and needs no CPU.  Readers of the types run without Ray, which is imported where it is called.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

NAMESPACE: Final = "fleetwright"
PREFIX: Final = "run:"


class RunPhase(StrEnum):
    """The state of a run's worker group."""

    STARTING = "starting"
    RUNNING = "running"
    ENDING = "ending"  # its workers are being ended: what they do now is no fault
    OVER = "over"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankLocation:
    rank: int
    node_id: str
    address: str
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    run: str
    attempt: int = 0  # worker groups started
    phase: RunPhase = RunPhase.STARTING
    places: tuple[RankLocation, ...] = ()
    worker_resources: Mapping[str, float] = field(default_factory=dict)
    step: int | None = None  # last reported
    checkpoint_step: int | None = None  # of the newest checkpoint
    checkpoints: int = 0
    attempt_step: int | None = None  # the first that this attempt reported
    min_workers: int = 1
    max_workers: int = 1
    requested_workers: int | None = None  # by the actuator; None: as many as possible

    def places_on(self, node_ids: frozenset[str]) -> tuple[RankLocation, ...]:
        return tuple(place for place in self.places if place.node_id in node_ids)


class RunStatusActor:
    def __init__(self, run: str, min_workers: int, max_workers: int) -> None:
        self._view = RunView(run=run, min_workers=min_workers, max_workers=max_workers)
        self._workers: dict[int, Any] = {}

    def view(self) -> RunView:
        return self._view

    def starting(self, resources: Mapping[str, float]) -> None:
        self._workers = {}
        self._view = replace(
            self._view, phase=RunPhase.STARTING, places=(), attempt_step=None, worker_resources=dict(resources)
        )

    def running(self, places: tuple[RankLocation, ...], workers: Mapping[int, Any]) -> None:
        self._workers = dict(workers)
        self._view = replace(
            self._view,
            attempt=self._view.attempt + 1,
            phase=RunPhase.RUNNING,
            places=places,
            attempt_step=None,
        )

    def ending(self) -> None:
        self._view = replace(self._view, phase=RunPhase.ENDING)

    def reported(self, step: int, *, checkpoint: bool) -> None:
        view = self._view
        self._view = replace(
            view,
            step=step,
            attempt_step=step if view.attempt_step is None else view.attempt_step,
            checkpoint_step=step if checkpoint else view.checkpoint_step,
            checkpoints=view.checkpoints + checkpoint,
        )

    def over(self) -> None:
        self._workers = {}
        self._view = replace(self._view, phase=RunPhase.OVER, places=())

    def request_workers(self, workers: int | None) -> None:
        """Set how many workers the run may have from its next safe point on."""
        self._view = replace(self._view, requested_workers=workers)

    def end_workers(self, attempt: int, node_ids: frozenset[str]) -> int:
        """Kill this attempt's workers on these nodes, frozen ones too: Ray sends SIGKILL through the raylet."""
        if self._view.attempt != attempt:
            return 0
        import ray  # noqa: PLC0415

        places = self._view.places_on(node_ids)
        for place in places:
            ray.kill(self._workers[place.rank], no_restart=True)
        return len(places)


def create_run_status_actor(run: str, *, min_workers: int, max_workers: int) -> Any:
    """Create the status actor of this process's run, on the same node."""
    import ray  # noqa: PLC0415

    here = ray.get_runtime_context().get_node_id()
    actor: Any = ray.remote(num_cpus=0)(RunStatusActor)
    return actor.options(
        name=PREFIX + run, namespace=NAMESPACE, get_if_exists=True, label_selector={"ray.io/node-id": here}
    ).remote(run, min_workers, max_workers)
