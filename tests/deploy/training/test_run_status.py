"""A run's board, and the callback that keeps it up to date, without Ray's part.  With it: tests/cluster."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("ray.train", reason="ray.train is not there", exc_type=ImportError)

import ray
from ray.train.v2._internal.execution.callback import ControllerCallback, ReportCallback, WorkerGroupCallback

from deploy.training.run_status import RunStatusReader
from fleetwright.ray_train import status_callback
from fleetwright.ray_train.run_status import RankLocation, RunPhase, RunStatusActor, RunView
from fleetwright.ray_train.status_callback import RunStatusCallback, TrainProcess

PLACES = (RankLocation(rank=0, node_id="x", address="", pid=1), RankLocation(rank=1, node_id="y", address="", pid=2))


class Method:
    """Of an actor that is this process's own."""

    def __init__(self, method: Any) -> None:
        self._method = method

    def remote(self, *args: Any, **named: Any) -> Any:
        return self._method(*args, **named)


@dataclass
class Near:
    """A board in place of the actor."""

    board: RunStatusActor

    def __getattr__(self, name: str) -> Method:
        return Method(getattr(self.board, name))


def worker(rank: int, node_id: str) -> SimpleNamespace:
    return SimpleNamespace(
        actor=f"actor-{rank}",
        distributed_context=SimpleNamespace(world_rank=rank),
        metadata=SimpleNamespace(node_id=node_id, node_ip="10.0.0.1", pid=rank + 1),
    )


def group(*node_ids: str) -> SimpleNamespace:
    return SimpleNamespace(get_workers=lambda: [worker(rank, node) for rank, node in enumerate(node_ids)])


@pytest.fixture
def board(monkeypatch: pytest.MonkeyPatch) -> RunStatusActor:
    board = RunStatusActor("llm", 1, 4)
    monkeypatch.setattr(status_callback, "create_run_status_actor", lambda *_args, **_named: Near(board))
    monkeypatch.setattr(ray, "get", lambda answer, timeout: answer)  # noqa: ARG005 - Ray's signature
    monkeypatch.setattr(TrainProcess, "checkpoints", 0)
    monkeypatch.setattr(TrainProcess, "status_actor", None)
    return board


@pytest.fixture
def told(board: RunStatusActor) -> RunStatusCallback:  # noqa: ARG001 - whom it tells
    tell = RunStatusCallback()
    run = SimpleNamespace(name="llm")
    scaling = SimpleNamespace(min_workers=1, max_workers=4)
    tell.after_controller_start(SimpleNamespace(scaling_config=scaling, get_run_config=lambda: run))
    return tell


def test_ray_calls_it_by_names_that_it_has() -> None:
    inherited = {
        name
        for base in (ControllerCallback, ReportCallback, WorkerGroupCallback)
        for name in dir(base)
        if name[0] != "_"
    }
    own = {name for name in vars(RunStatusCallback) if name[0] != "_"}
    assert own <= inherited


def test_an_attempt_is_told_from_its_start_to_its_end(board: RunStatusActor, told: RunStatusCallback) -> None:
    told.before_worker_group_start(SimpleNamespace(resources_per_worker={"CPU": 1.0}))
    assert (board.view().phase, board.view().attempt) == (RunPhase.STARTING, 0)
    told.after_worker_group_training_start(group("x", "y"))
    running = board.view()
    assert (running.phase, running.attempt, running.worker_resources) == (RunPhase.RUNNING, 1, {"CPU": 1.0})
    assert [(place.rank, place.node_id, place.pid) for place in running.places] == [(0, "x", 1), (1, "y", 2)]
    told.before_worker_group_shutdown(group())
    assert board.view().phase is RunPhase.ENDING
    assert board.view().places == running.places


def test_steps_and_checkpoints_are_told_and_the_first_of_an_attempt_is_kept(
    board: RunStatusActor, told: RunStatusCallback
) -> None:
    told.after_worker_group_training_start(group("x"))
    told.after_report(SimpleNamespace(checkpoint="c"), [{"step": 9}])
    told.after_report(SimpleNamespace(checkpoint=None), [{"step": 19}])
    first = board.view()
    assert (first.step, first.attempt_step, first.checkpoint_step, first.checkpoints) == (19, 9, 9, 1)
    told.after_worker_group_training_start(group("y"))
    assert (board.view().attempt_step, board.view().checkpoint_step) == (None, 9)
    told.after_report(SimpleNamespace(checkpoint=None), [{"loss": 1.0}])
    assert board.view().attempt_step == 3  # the number of the report, where the job names no step
    assert TrainProcess.checkpoints == 1


def test_what_goes_wrong_is_no_matter_of_the_job(told: RunStatusCallback) -> None:
    told.after_worker_group_training_start(SimpleNamespace())
    told.after_report(SimpleNamespace(checkpoint=None), [{"step": "nine"}])
    RunStatusCallback().before_worker_group_shutdown(group())


def test_only_the_named_attempts_workers_on_the_named_nodes_are_ended(
    board: RunStatusActor, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[Any] = []
    monkeypatch.setattr(ray, "kill", lambda actor, no_restart: killed.append((actor, no_restart)))
    board.running(PLACES, {0: "a", 1: "b"})
    assert board.end_workers(2, frozenset({"y"})) == 0
    assert board.end_workers(1, frozenset({"y", "z"})) == 1
    assert killed == [("b", True)]


def test_a_board_that_died_is_a_run_that_is_over_and_one_that_is_late_or_away_is_silent(
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
    monkeypatch.setattr(RunStatusReader, "_asked", lambda _self, name, _method: name.removeprefix("run:"))
    monkeypatch.setattr(ray, "wait", lambda refs, **_: ([ref for ref in refs if ref != "late"], ["late"]))
    monkeypatch.setattr(ray, "get", get)
    seen = RunStatusReader().all_runs()
    assert [view.run for view in seen.runs] == ["fine"]
    assert seen.silent == {"away", "late"}
