"""An elastic run whose number of workers Fleetwright may change within its bounds, at the next safe point.

    class Trainer(ResizableTrainer, TorchTrainer): ...
    scaling = ScalingConfig(num_workers=(2, 16), ...)
    Trainer(..., scaling_config=scaling, run_config=RunConfig(callbacks=[RunStatusCallback()]))

A request for workers goes to the run's status actor.  Ray Train resizes a group by restarting it from the last
checkpoint, which loses the training since then.  So a change waits for the next checkpoint, for `PATIENCE_S` at most.
Between changes Ray's elastic policy applies: the group grows into free resources up to the requested number.
"""

import logging
import time
from collections.abc import Callable
from typing import Any, Final

import ray
from ray.exceptions import GetTimeoutError, RayError
from ray.train.v2._internal.execution.scaling_policy import (
    ElasticScalingPolicy,
    NoopDecision,
    ResizeDecision,
    ScalingDecision,
)

from fleetwright.ray_train.run_status import RunView
from fleetwright.ray_train.status_callback import TrainProcess

log = logging.getLogger(__name__)

READ_EVERY_S: Final = 1.0
REPLY_S: Final = 2.0
PATIENCE_S: Final = 600.0  # a run that never checkpoints is resized all the same


def requested_workers() -> int | None:
    """Return the requested number of workers of this process's run; None: no request, or no reply."""
    if TrainProcess.status_actor is None:
        return None
    try:
        view: RunView = ray.get(TrainProcess.status_actor.view.remote(), timeout=REPLY_S)
    except (GetTimeoutError, RayError):
        return None
    return view.requested_workers


class ResizableScalingPolicy(ElasticScalingPolicy):  # type: ignore[misc]
    """Ray's elastic policy, limited to the requested number of workers."""

    def __init__(
        self,
        scaling_config: Any,
        *,
        read_request: Callable[[], int | None] = requested_workers,
        steady_s: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(scaling_config)
        self._read_request, self._steady_s = read_request, steady_s
        self._requested: int | None = None
        self._requested_at_s = float("-inf")
        self._changed_at_s = 0.0
        self._checkpoints = 0  # when the request arrived

    @property
    def max_workers(self) -> int:
        """Return the largest number of workers that the run may have."""
        config = self.scaling_config
        if self._requested is None:
            return int(config.max_workers)
        return int(min(config.max_workers, max(config.min_workers, self._requested)))

    def make_decision_for_non_running_worker_group(self) -> ScalingDecision:
        """Start a group with the right size."""
        self._update_request()
        return super().make_decision_for_non_running_worker_group()

    def make_decision_for_running_worker_group(
        self, worker_group_state: Any, worker_group_status: Any
    ) -> ScalingDecision:
        """Shrink to the requested number at the next safe point; grow as Ray's policy does."""
        self._update_request()
        if worker_group_state.num_workers > self.max_workers:
            self._maybe_send_resource_request()
            if not self._is_safe():
                return NoopDecision()
            log.info("fewer workers: %d -> %d", worker_group_state.num_workers, self.max_workers)
            return self._get_resize_decision(self.max_workers)
        decision = super().make_decision_for_running_worker_group(worker_group_state, worker_group_status)
        if isinstance(decision, ResizeDecision) and decision.num_workers > worker_group_state.num_workers:
            return decision if self._is_safe() else self._later()
        return decision

    def _count_possible_workers(self, reserved_resources: Any) -> int:
        return min(self.max_workers, int(super()._count_possible_workers(reserved_resources)))

    def _update_request(self) -> None:
        now_s = self._steady_s()
        if now_s - self._requested_at_s < READ_EVERY_S:
            return
        self._requested_at_s = now_s
        requested = self._read_request()
        if requested is not None and requested != self._requested:
            self._requested, self._changed_at_s, self._checkpoints = requested, now_s, TrainProcess.checkpoints

    def _is_safe(self) -> bool:
        """Return whether a checkpoint came after the request, or none came for too long, or none ever."""
        waited_s = self._steady_s() - self._changed_at_s
        return TrainProcess.checkpoints > self._checkpoints or TrainProcess.checkpoints == 0 or waited_s >= PATIENCE_S

    def _later(self) -> NoopDecision:
        """Return a decision to try again at once, not after Ray's usual interval."""
        self._latest_monitor_time = float("-inf")
        return NoopDecision()


class ResizableTrainer:
    """The first base of a Ray Train v2 trainer: an elastic run takes its size from its status actor."""

    def _initialize_and_run_controller(self, **parts: Any) -> Any:
        policy = parts.get("scaling_policy")
        if isinstance(policy, ElasticScalingPolicy):
            parts["scaling_policy"] = ResizableScalingPolicy(policy.scaling_config)
        return super()._initialize_and_run_controller(**parts)  # type: ignore[misc]
