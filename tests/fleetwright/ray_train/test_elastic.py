"""A training run changes to the requested size within its bounds, after a checkpoint."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

pytest.importorskip("ray.train", reason="Ray Train is not installed", exc_type=ImportError)

import ray.train
from ray.train.v2._internal.execution.scaling_policy import NoopDecision, ResizeDecision

from fleetwright.ray_train.elastic import PATIENCE_S, ResizableScalingPolicy, ResizableTrainer
from fleetwright.ray_train.status_callback import TrainProcess


@dataclass
class Group:
    """A running worker group."""

    num_workers: int
    start_time: float = 0.0


class Policy(ResizableScalingPolicy):
    """A policy with a fixed number of CPUs and no coordinator."""

    def __init__(self, *, cpus: int = 8, bounds: tuple[int, int] = (2, 6)) -> None:
        self.cpus, self.now_s = cpus, 1000.0
        self.requested_workers: int | None = None
        config = ray.train.ScalingConfig(num_workers=bounds, elastic_resize_monitor_interval_s=0.0)
        super().__init__(config, read_request=lambda: self.requested_workers, steady_s=lambda: self.now_s)

    def _maybe_send_resource_request(self) -> None:
        """The test has no coordinator."""

    def _get_reserved_resources(self) -> dict[str, Any]:
        return {"node": {"CPU": float(self.cpus)}}

    def request(self, workers: int | None) -> None:
        self.requested_workers = workers
        self.now_s += 10.0

    def decided_size(self, running: int | None) -> int | None:
        """The new size; None: unchanged."""
        if running is None:
            decision = self.make_decision_for_non_running_worker_group()
        else:
            decision = self.make_decision_for_running_worker_group(Group(running), None)
        assert isinstance(decision, ResizeDecision | NoopDecision)
        return decision.num_workers if isinstance(decision, ResizeDecision) else None


@pytest.fixture(autouse=True)
def checkpoints() -> Iterator[None]:
    TrainProcess.checkpoints = 5
    yield
    TrainProcess.checkpoints = 0


def test_without_a_request_the_group_scales_as_with_rays_own_policy() -> None:
    policy = Policy()
    assert (policy.decided_size(None), policy.decided_size(6), Policy(cpus=3).decided_size(None)) == (6, None, 3)


def test_a_new_worker_group_gets_the_requested_size_within_its_bounds() -> None:
    policy = Policy()
    for requested_workers, size in ((3, 3), (1, 2), (99, 6)):
        policy.request(requested_workers)
        assert policy.decided_size(None) == size


def test_a_running_group_resizes_after_the_next_checkpoint() -> None:
    policy = Policy()
    policy.request(3)
    assert policy.decided_size(6) is None
    TrainProcess.checkpoints += 1
    assert policy.decided_size(6) == 3
    policy.request(5)
    assert policy.decided_size(3) is None
    TrainProcess.checkpoints += 1
    assert policy.decided_size(3) == 5


def test_a_resize_does_not_wait_for_a_checkpoint_that_never_comes() -> None:
    policy = Policy()
    TrainProcess.checkpoints = 0
    policy.request(3)
    assert policy.decided_size(6) == 3
    TrainProcess.checkpoints = 5
    policy.request(2)
    assert policy.decided_size(3) is None
    policy.now_s += PATIENCE_S
    assert policy.decided_size(3) == 2


def test_a_missing_response_keeps_the_requested_size() -> None:
    policy = Policy()
    policy.request(3)
    assert policy.decided_size(None) == 3
    policy.request(None)
    assert policy.decided_size(None) == 3


def test_only_an_elastic_trainer_gets_the_resizable_policy() -> None:
    class Trainer:
        def _initialize_and_run_controller(self, **parts: Any) -> Any:
            return parts["scaling_policy"]

    class Elastic(ResizableTrainer, Trainer):
        pass

    inner = Policy()
    outer = Elastic()._initialize_and_run_controller(scaling_policy=inner)
    assert isinstance(outer, ResizableScalingPolicy)
    assert outer.scaling_config is inner.scaling_config
    assert Elastic()._initialize_and_run_controller(scaling_policy="fixed") == "fixed"
