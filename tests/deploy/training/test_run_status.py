"""The run status actor and the callback that updates it, without Ray.  tests/cluster covers both with Ray."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("ray.train", reason="ray.train is not installed", exc_type=ImportError)

import ray
from ray.train.v2._internal.execution.callback import ControllerCallback, ReportCallback, WorkerGroupCallback

from deploy.training.run_status import RunStatusReader
from fleetwright.ray_train import status_callback
from fleetwright.ray_train.run_status import RankLocation, RunPhase, RunStatusActor, RunView
from fleetwright.ray_train.status_callback import RunStatusCallback, TrainProcess

PLACES = (RankLocation(rank=0, node_id="x", address="", pid=1), RankLocation(rank=1, node_id="y", address="", pid=2))


class Method:
    """A method of an actor in this process."""

    def __init__(self, method: Any) -> None:
        self._method = method

    def remote(self, *args: Any, **named: Any) -> Any:
        return self._method(*args, **named)


@dataclass
class LocalActor:
    """A handle of a run status actor in this process."""

    status_actor: RunStatusActor

    def __getattr__(self, name: str) -> Method:
        return Method(getattr(self.status_actor, name))


def worker(rank: int, node_id: str) -> SimpleNamespace:
    return SimpleNamespace(
        actor=f"actor-{rank}",
        distributed_context=SimpleNamespace(world_rank=rank),
        metadata=SimpleNamespace(node_id=node_id, node_ip="10.0.0.1", pid=rank + 1),
    )


def group(*node_ids: str) -> SimpleNamespace:
    return SimpleNamespace(get_workers=lambda: [worker(rank, node) for rank, node in enumerate(node_ids)])


@pytest.fixture
def status_actor(monkeypatch: pytest.MonkeyPatch) -> RunStatusActor:
    status_actor = RunStatusActor("llm", 1, 4)
    monkeypatch.setattr(status_callback, "create_run_status_actor", lambda *_args, **_named: LocalActor(status_actor))
    monkeypatch.setattr(ray, "get", lambda answer, timeout: answer)  # noqa: ARG005 - Ray's signature
    monkeypatch.setattr(TrainProcess, "checkpoints", 0)
    monkeypatch.setattr(TrainProcess, "status_actor", None)
    return status_actor


@pytest.fixture
def callback_of_run(status_actor: RunStatusActor) -> RunStatusCallback:  # noqa: ARG001 - patches the actor
    callback = RunStatusCallback()
    run = SimpleNamespace(name="llm")
    scaling = SimpleNamespace(min_workers=1, max_workers=4)
    callback.after_controller_start(SimpleNamespace(scaling_config=scaling, get_run_config=lambda: run))
    return callback


def test_the_callback_defines_only_methods_of_its_ray_base_classes() -> None:
    inherited = {
        name
        for base in (ControllerCallback, ReportCallback, WorkerGroupCallback)
        for name in dir(base)
        if name[0] != "_"
    }
    own = {name for name in vars(RunStatusCallback) if name[0] != "_"}
    assert own <= inherited


def test_an_attempt_is_reported_from_its_start_to_its_end(
    status_actor: RunStatusActor, callback_of_run: RunStatusCallback
) -> None:
    callback_of_run.before_worker_group_start(SimpleNamespace(resources_per_worker={"CPU": 1.0}))
    assert (status_actor.view().phase, status_actor.view().attempt) == (RunPhase.STARTING, 0)
    callback_of_run.after_worker_group_training_start(group("x", "y"))
    running = status_actor.view()
    assert (running.phase, running.attempt, running.worker_resources) == (RunPhase.RUNNING, 1, {"CPU": 1.0})
    assert [(place.rank, place.node_id, place.pid) for place in running.places] == [(0, "x", 1), (1, "y", 2)]
    callback_of_run.before_worker_group_shutdown(group())
    assert status_actor.view().phase is RunPhase.ENDING
    assert status_actor.view().places == running.places


def test_steps_checkpoints_and_the_first_step_of_an_attempt_are_reported(
    status_actor: RunStatusActor, callback_of_run: RunStatusCallback
) -> None:
    callback_of_run.after_worker_group_training_start(group("x"))
    callback_of_run.after_report(SimpleNamespace(checkpoint="c"), [{"step": 9}])
    callback_of_run.after_report(SimpleNamespace(checkpoint=None), [{"step": 19}])
    first = status_actor.view()
    assert (first.step, first.attempt_step, first.checkpoint_step, first.checkpoints) == (19, 9, 9, 1)
    callback_of_run.after_worker_group_training_start(group("y"))
    assert (status_actor.view().attempt_step, status_actor.view().checkpoint_step) == (None, 9)
    callback_of_run.after_report(SimpleNamespace(checkpoint=None), [{"loss": 1.0}])
    assert status_actor.view().attempt_step == 3  # the number of the report, if the job reports no step
    assert TrainProcess.checkpoints == 1


def test_errors_of_the_callback_do_not_reach_the_job(callback_of_run: RunStatusCallback) -> None:
    callback_of_run.after_worker_group_training_start(SimpleNamespace())
    callback_of_run.after_report(SimpleNamespace(checkpoint=None), [{"step": "nine"}])
    RunStatusCallback().before_worker_group_shutdown(group())


def test_only_workers_of_the_given_attempt_and_nodes_are_ended(
    status_actor: RunStatusActor, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[Any] = []
    monkeypatch.setattr(ray, "kill", lambda actor, no_restart: killed.append((actor, no_restart)))
    status_actor.running(PLACES, {0: "a", 1: "b"})
    assert status_actor.end_workers(2, frozenset({"y"})) == 0
    assert status_actor.end_workers(1, frozenset({"y", "z"})) == 1
    assert killed == [("b", True)]


def test_a_dead_status_actor_ends_its_run_and_an_unresponsive_one_is_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    died, away = ray.exceptions.ActorDiedError(), ray.exceptions.ActorUnavailableError("away", actor_id=None)
    answers: dict[str, Any] = {"fine": RunView(run="fine"), "died": died, "away": away, "late": None}
    answers["over"] = RunView(run="over", phase=RunPhase.OVER)

    def get(name: str) -> Any:
        if isinstance(answers[name], Exception):
            raise answers[name]
        return answers[name]

    named = [{"name": f"run:{name}", "namespace": "fleetwright"} for name in answers]
    named += [{"name": "run:other", "namespace": "else"}, {"name": "SERVE", "namespace": "fleetwright"}]
    monkeypatch.setattr(ray.util, "list_named_actors", lambda all_namespaces: named)  # noqa: ARG005
    monkeypatch.setattr(RunStatusReader, "_call_remote", lambda _self, name, _method: name.removeprefix("run:"))
    monkeypatch.setattr(ray, "wait", lambda refs, **_: ([ref for ref in refs if ref != "late"], ["late"]))
    monkeypatch.setattr(ray, "get", get)
    observed = RunStatusReader().all_runs()
    assert [view.run for view in observed.runs] == ["fine"]
    assert observed.silent == {"away", "late"}
