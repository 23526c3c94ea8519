"""A training run as a target: replicas of several workers, worker bounds, and missing run status actors."""

from dataclasses import dataclass, replace
from typing import Any

import pytest

pytest.importorskip("ray.train", reason="ray.train is not installed", exc_type=ImportError)

from api.schemas.applications import RayTrainRun
from deploy.actuators.base import Bounds, Step
from deploy.actuators.ray_train import RayTrainActuator, ray_train_actuators
from deploy.common.errors import PlanUnusableError, UnreachableError
from deploy.controller.rollout import plan_changes, verify
from deploy.training.run_status import RunStatusReader
from fleetwright.ray_train.run_status import RankLocation, RunPhase, RunView

pytestmark = pytest.mark.anyio
RUN = RayTrainRun(run="llm", gpu="H100", workers_per_replica=2)


def run_view(workers: int, **more: Any) -> RunView:
    places = tuple(RankLocation(rank=rank, node_id="n", address="", pid=rank) for rank in range(workers))
    return replace(RunView(run="llm", phase=RunPhase.RUNNING, places=places, min_workers=2, max_workers=8), **more)


@dataclass
class OneRunReader(RunStatusReader):
    """Reads the status of one run in this process."""

    now: RunView | None

    def one_run(self, run: str) -> RunView:
        if self.now is None:
            raise UnreachableError(f"there is no training run {run!r}")
        return self.now

    def request_workers(self, run: str, workers: int | None) -> None:
        assert run == "llm"
        assert self.now is not None
        self.now = replace(self.now, requested_workers=workers)


async def test_replicas_are_converted_to_requested_workers() -> None:
    reader = OneRunReader(run_view(8))
    actuator = RayTrainActuator(reader, RUN)
    observation = await actuator.observe()
    assert (observation.requested, observation.running, observation.bounds) == (
        {"H100": 4},
        {"H100": 4},
        {"H100": Bounds(1, 4, "ScalingConfig.num_workers of training run 'llm'")},
    )
    (step,) = plan_changes(wanted={"H100": 2}, observation=observation, max_step=10)
    await actuator.apply(step)
    assert reader.now is not None
    assert reader.now.requested_workers == 4
    waiting = await actuator.observe()
    assert not verify(wanted={"H100": 2}, observation=waiting)
    reader.now = replace(run_view(4), requested_workers=4)
    assert verify(wanted={"H100": 2}, observation=await actuator.observe())


async def test_a_starting_worker_group_counts_no_running_replicas_and_is_noted() -> None:
    observation = await RayTrainActuator(OneRunReader(run_view(8, phase=RunPhase.STARTING)), RUN).observe()
    assert (observation.running, observation.note) == ({"H100": 0}, "its workers are starting")


async def test_a_worker_count_outside_the_bounds_is_refused_with_the_allowed_range() -> None:
    reader = OneRunReader(run_view(8))
    with pytest.raises(PlanUnusableError, match="cannot have 10 workers; allowed: 2 to 8"):
        await RayTrainActuator(reader, RUN).apply(Step(part="H100", replicas_before=4, replicas_after=5))
    assert reader.now is not None
    assert reader.now.requested_workers is None
    fixed = await RayTrainActuator(OneRunReader(run_view(8, min_workers=8)), RUN).observe()
    assert fixed.note is not None
    assert "not a range" in fixed.note


async def test_a_missing_run_is_unreachable() -> None:
    with pytest.raises(UnreachableError):
        await RayTrainActuator(OneRunReader(None), RUN).observe()


def test_each_run_is_read_from_its_own_namespace() -> None:
    namespaces: list[str] = []

    def reader_of(namespace: str) -> RunStatusReader:
        namespaces.append(namespace)
        return OneRunReader(None)

    ray_train_actuators(reader_of)(RUN.model_copy(update={"namespace": "team-a"}))
    assert namespaces == ["team-a"]
