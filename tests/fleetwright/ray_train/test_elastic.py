"""When a run changes its size: to what is asked for within its bounds, just after a checkpoint."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

pytest.importorskip("ray.train", reason="ray.train is not there", exc_type=ImportError)

import ray.train
from ray.train.v2._internal.execution.scaling_policy import NoopDecision, ResizeDecision

from fleetwright.ray_train.elastic import PATIENCE_S, ResizableScalingPolicy, ResizableTrainer
from fleetwright.ray_train.status_callback import TrainProcess


@dataclass
class Group:
    """Of workers that train."""

    num_workers: int
    start_time: float = 0.0


class Policy(ResizableScalingPolicy):
    """With as many CPUs as a test says, and no coordinator."""

    def __init__(self, *, cpus: int = 8, bounds: tuple[int, int] = (2, 6)) -> None:
        self.cpus, self.now_s = cpus, 1000.0
        self.wish: int | None = None
        config = ray.train.ScalingConfig(num_workers=bounds, elastic_resize_monitor_interval_s=0.0)
        super().__init__(config, read_request=lambda: self.wish, steady_s=lambda: self.now_s)

    def _maybe_send_resource_request(self) -> None:
        """There is nobody to send it to."""

    def _get_reserved_resources(self) -> dict[str, Any]:
        return {"node": {"CPU": float(self.cpus)}}

    def asked(self, workers: int | None) -> None:
        self.wish = workers
        self.now_s += 10.0

    def decides(self, running: int | None) -> int | None:
        """The size decided on; None: it stays."""
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


def test_without_a_wish_it_grows_as_rays_own_policy_does() -> None:
    policy = Policy()
    assert (policy.decides(None), policy.decides(6), Policy(cpus=3).decides(None)) == (6, None, 3)


def test_a_group_that_starts_has_the_size_asked_for_at_once_within_its_bounds() -> None:
    policy = Policy()
    for wish, size in ((3, 3), (1, 2), (99, 6)):
        policy.asked(wish)
        assert policy.decides(None) == size


def test_one_that_trains_changes_after_the_next_checkpoint() -> None:
    policy = Policy()
    policy.asked(3)
    assert policy.decides(6) is None
    TrainProcess.checkpoints += 1
    assert policy.decides(6) == 3
    policy.asked(5)
    assert policy.decides(3) is None
    TrainProcess.checkpoints += 1
    assert policy.decides(3) == 5


def test_what_never_checkpoints_is_not_waited_for() -> None:
    policy = Policy()
    TrainProcess.checkpoints = 0
    policy.asked(3)
    assert policy.decides(6) == 3
    TrainProcess.checkpoints = 5
    policy.asked(2)
    assert policy.decides(3) is None
    policy.now_s += PATIENCE_S
    assert policy.decides(3) == 2


def test_a_board_that_does_not_answer_changes_nothing() -> None:
    policy = Policy()
    policy.asked(3)
    assert policy.decides(None) == 3
    policy.asked(None)
    assert policy.decides(None) == 3


def test_only_an_elastic_trainer_is_given_the_policy() -> None:
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
