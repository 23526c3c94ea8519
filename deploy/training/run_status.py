"""Reads the status actors of all training runs (`fleetwright.ray_train.run_status`) and sends requests to them."""

from dataclasses import dataclass
from typing import Any, Final

import ray
from ray.exceptions import ActorDiedError, GetTimeoutError, RayError

from deploy.common.errors import ActuationError, UnreachableError
from deploy.common.text import reason_of
from fleetwright.ray_train.run_status import NAMESPACE, PREFIX, RunPhase, RunView

REPLY_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsObserved:
    runs: tuple[RunView, ...] = ()
    silent: frozenset[str] = frozenset()  # they exist and do not reply: their state is unknown


class RunStatusReader:
    """Reads all status actors of the cluster that this process has joined.  Calls block on Ray: use a thread."""

    def __init__(self, namespace: str = NAMESPACE) -> None:
        self._namespace = namespace

    def all_runs(self) -> RunsObserved:
        try:
            named = ray.util.list_named_actors(all_namespaces=True)
        except Exception as error:
            raise UnreachableError(f"Ray does not list its actors: {error}") from error
        names = sorted(
            each["name"] for each in named if each["namespace"] == self._namespace and each["name"].startswith(PREFIX)
        )
        replies = {name: self._call_remote(name, "view") for name in names}
        ready, _late = _wait([reply for reply in replies.values() if reply is not None])
        views: list[RunView] = []
        silent: set[str] = set()
        for name, reply in replies.items():
            try:
                view = ray.get(reply) if reply in ready else None
            except ActorDiedError:
                continue  # with its run
            except RayError:
                view = None
            if view is None:
                silent.add(name.removeprefix(PREFIX))
            elif view.phase is not RunPhase.OVER:
                views.append(view)
        return RunsObserved(runs=tuple(views), silent=frozenset(silent))

    def one_run(self, run: str) -> RunView:
        """Return one run.  Raise UnreachableError if there is none or it does not reply."""
        view: RunView = self._call(run, "view")
        return view

    def request_workers(self, run: str, workers: int | None) -> None:
        self._call(run, "request_workers", workers)

    def end_workers(self, run: str, *, attempt: int, node_ids: frozenset[str]) -> int:
        """Kill an attempt's workers on some nodes; return their number."""
        ended: int = self._call(run, "end_workers", attempt, node_ids)
        return ended

    def _call_remote(self, name: str, method: str, *args: Any) -> Any:
        try:
            return getattr(ray.get_actor(name, namespace=self._namespace), method).remote(*args)
        except (ValueError, RayError):
            return None

    def _call(self, run: str, method: str, *args: Any) -> Any:
        reply = self._call_remote(PREFIX + run, method, *args)
        if reply is None:
            raise UnreachableError(f"there is no training run {run!r} with a status actor in {self._namespace!r}")
        try:
            return ray.get(reply, timeout=REPLY_S)
        except GetTimeoutError as error:
            raise UnreachableError(f"training run {run!r} does not reply within {REPLY_S:g} s") from error
        except RayError as error:
            raise ActuationError(f"training run {run!r}: {reason_of(error)}") from error


def _wait(replies: list[Any]) -> tuple[list[Any], list[Any]]:
    return ray.wait(replies, num_returns=len(replies), timeout=REPLY_S) if replies else ([], [])
