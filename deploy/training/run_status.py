"""Where a training run says how it is, and where others say what they want of it: one named actor per run.

The run's own controller keeps it up to date (`deploy.training.status_callback`), and it ends with that controller: no
board, no
run.  Whoever heals, watches or resizes the run reads it and keeps nothing.  It sits on the controller's node and needs
no CPU.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

import ray
from ray.exceptions import ActorDiedError, GetTimeoutError, RayError

from deploy.common.errors import ActuationError, UnreachableError

NAMESPACE: Final = "fleetwright"
PREFIX: Final = "run:"
ANSWER_S: Final = 5.0


class RunPhase(StrEnum):
    """What the worker group of a run does."""

    STARTING = "starting"
    RUNNING = "running"
    ENDING = "ending"  # its workers are being ended: what they do now is no fault
    OVER = "over"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where one rank runs."""

    rank: int
    node_id: str
    address: str
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """A run as it is now."""

    run: str
    attempt: int = 0  # worker groups begun
    phase: RunPhase = RunPhase.STARTING
    places: tuple[Place, ...] = ()
    worker_resources: Mapping[str, float] = field(default_factory=dict)
    step: int | None = None  # last reported
    checkpoint_step: int | None = None  # of the newest checkpoint
    checkpoints: int = 0
    attempt_step: int | None = None  # the first that this attempt reported
    least_workers: int = 1
    most_workers: int = 1
    asked_workers: int | None = None  # by whoever moves capacity; None: as many as may be

    def places_on(self, node_ids: frozenset[str]) -> tuple[Place, ...]:
        """Ranks on these nodes."""
        return tuple(place for place in self.places if place.node_id in node_ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsSeen:
    """All runs of a cluster."""

    runs: tuple[RunView, ...] = ()
    silent: frozenset[str] = frozenset()  # they are there and do not answer: nothing is known of them


class RunBoard:
    """The actor."""

    def __init__(self, run: str, least_workers: int, most_workers: int) -> None:
        self._view = RunView(run=run, least_workers=least_workers, most_workers=most_workers)
        self._workers: dict[int, Any] = {}

    def look(self) -> RunView:
        """As it is now."""
        return self._view

    def starting(self, resources: Mapping[str, float]) -> None:
        """A worker group is about to begin; those before are gone."""
        self._workers = {}
        self._view = replace(
            self._view, phase=RunPhase.STARTING, places=(), attempt_step=None, worker_resources=dict(resources)
        )

    def running(self, places: tuple[Place, ...], workers: Mapping[int, Any]) -> None:
        """A worker group trains."""
        self._workers = dict(workers)
        self._view = replace(
            self._view,
            attempt=self._view.attempt + 1,
            phase=RunPhase.RUNNING,
            places=places,
            attempt_step=None,
        )

    def ending(self) -> None:
        """The worker group is being ended."""
        self._view = replace(self._view, phase=RunPhase.ENDING)

    def reported(self, step: int, *, checkpoint: bool) -> None:
        """All ranks have reported a step."""
        view = self._view
        self._view = replace(
            view,
            step=step,
            attempt_step=step if view.attempt_step is None else view.attempt_step,
            checkpoint_step=step if checkpoint else view.checkpoint_step,
            checkpoints=view.checkpoints + checkpoint,
        )

    def over(self) -> None:
        """The run has ended."""
        self._workers = {}
        self._view = replace(self._view, phase=RunPhase.OVER, places=())

    def ask(self, workers: int | None) -> None:
        """How many workers the run may have from its next safe point on."""
        self._view = replace(self._view, asked_workers=workers)

    def end_workers(self, attempt: int, node_ids: frozenset[str]) -> int:
        """Kill this attempt's workers on these nodes, frozen ones too: Ray kills by SIGKILL through the raylet."""
        if self._view.attempt != attempt:
            return 0
        places = self._view.places_on(node_ids)
        for place in places:
            ray.kill(self._workers[place.rank], no_restart=True)
        return len(places)


def new_board(run: str, *, least_workers: int, most_workers: int) -> Any:
    """Of this process's run, beside it on its node."""
    here = ray.get_runtime_context().get_node_id()
    actor: Any = ray.remote(num_cpus=0)(RunBoard)
    return actor.options(
        name=PREFIX + run, namespace=NAMESPACE, get_if_exists=True, label_selector={"ray.io/node-id": here}
    ).remote(run, least_workers, most_workers)


class Boards:
    """All boards of the cluster that this process has joined.  Calls wait for Ray: use a thread."""

    def __init__(self, namespace: str = NAMESPACE) -> None:
        self._namespace = namespace

    def look(self) -> RunsSeen:
        """Every run."""
        try:
            named = ray.util.list_named_actors(all_namespaces=True)
        except Exception as error:
            raise UnreachableError(f"Ray does not list its actors: {error}") from error
        names = sorted(
            each["name"] for each in named if each["namespace"] == self._namespace and each["name"].startswith(PREFIX)
        )
        answers = {name: self._asked(name, "look") for name in names}
        ready, _late = _waited([answer for answer in answers.values() if answer is not None])
        views: list[RunView] = []
        silent: set[str] = set()
        for name, answer in answers.items():
            try:
                view = ray.get(answer) if answer in ready else None
            except ActorDiedError:
                continue  # with its run
            except RayError:
                view = None
            if view is None:
                silent.add(name.removeprefix(PREFIX))
            elif view.phase is not RunPhase.OVER:
                views.append(view)
        return RunsSeen(runs=tuple(views), silent=frozenset(silent))

    def look_at(self, run: str) -> RunView:
        """One run; UnreachableError when there is none, or it does not answer."""
        view: RunView = self._call(run, "look")
        return view

    def ask(self, run: str, workers: int | None) -> None:
        """How many workers a run may have."""
        self._call(run, "ask", workers)

    def end_workers(self, run: str, *, attempt: int, node_ids: frozenset[str]) -> int:
        """Kill an attempt's workers on some nodes; how many there were."""
        ended: int = self._call(run, "end_workers", attempt, node_ids)
        return ended

    def _asked(self, name: str, method: str, *args: Any) -> Any:
        try:
            return getattr(ray.get_actor(name, namespace=self._namespace), method).remote(*args)
        except (ValueError, RayError):
            return None

    def _call(self, run: str, method: str, *args: Any) -> Any:
        answer = self._asked(PREFIX + run, method, *args)
        if answer is None:
            raise UnreachableError(f"there is no training run {run!r} that tells of itself in {self._namespace!r}")
        try:
            return ray.get(answer, timeout=ANSWER_S)
        except GetTimeoutError as error:
            raise UnreachableError(f"training run {run!r} does not answer within {ANSWER_S:g} s") from error
        except RayError as error:
            raise ActuationError(f"training run {run!r}: {str(error).splitlines()[0]}") from error


def _waited(answers: list[Any]) -> tuple[list[Any], list[Any]]:
    return ray.wait(answers, num_returns=len(answers), timeout=ANSWER_S) if answers else ([], [])
