"""Runs a monitored job of Ray Train v2: `python -m tests.testbed.train_job FILE`, which holds `TrainJob` as JSON.

It uses no torch: its workers synchronise with Ray Train's barriers, and report a checkpoint every few steps.
The job's faults are configured: a worker that stays away until a file appears, or that exits without a message in its
first life.  With `healed` it also reports to the run's actor, has each worker on its own node, and writes a line for
every life of a worker after its first step.
"""

import json
import os
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import ray
import ray.train
import ray.train.collective
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

from fleetwright.ray_train.collectives import WatchWorkers
from fleetwright.ray_train.elastic import ResizableTrainer
from fleetwright.ray_train.status_callback import RunStatusCallback

STEP_S: Final = 0.05
BETWEEN_REPORTS: Final = 10  # steps: a report blocks until Ray's controller polls
POLLS_S: Final = "0.1"  # between two polls of the controller; Ray's default is 2
RESIZES_S: Final = 1.0
STATE: Final = "state.json"


@dataclass(frozen=True, kw_only=True)
class TrainJob:
    """Describes one job and its faults."""

    address: str  # of the cluster
    folder: str  # for checkpoints and the files below
    to: str  # where workers report
    steps: int
    workers: int = 2
    stays_away: tuple[int, int] | None = None  # rank and step; the rank continues when the file `go-on` exists
    ends: tuple[int, int] | None = None  # rank and step
    healed: bool = False
    min_workers: int | None = None  # makes it elastic, up to `workers`

    @property
    def lives(self) -> Path:
        """Has a line for every life of a worker that completed a step, with `healed`."""
        return Path(self.folder) / "lives.jsonl"

    @property
    def go_on(self) -> Path:
        """Lets the rank that stays away continue."""
        return Path(self.folder) / "go-on"

    @property
    def ended(self) -> Path:
        """Is written by the rank that exits, so that its second life does not."""
        return Path(self.folder) / "ended"


class ElasticTrainer(ResizableTrainer, DataParallelTrainer):  # type: ignore[misc]
    """Takes its size from its actor."""


def train(config: dict[str, Any]) -> None:
    """Run one worker."""
    job = TrainJob(**config)
    rank = ray.train.get_context().get_world_rank()
    first = _first_step()
    for step in range(first, job.steps):
        time.sleep(STEP_S)
        _go_wrong(job, rank, step)
        ray.train.collective.barrier()
        if job.healed and step == first:
            _record_start(job, rank, first)
        if step % BETWEEN_REPORTS == BETWEEN_REPORTS - 1:
            _report(step)


def main(job: TrainJob) -> int:
    """Run the job on the cluster; print the last reported step as JSON."""
    os.environ["RAY_TRAIN_HEALTH_CHECK_INTERVAL_S"] = POLLS_S
    ray.init(address=job.address, log_to_driver=False)
    watch = WatchWorkers(to=job.to)
    elastic = job.min_workers is not None
    trainer = (ElasticTrainer if elastic else DataParallelTrainer)(
        train,
        train_loop_config=asdict(job),
        scaling_config=ray.train.ScalingConfig(
            num_workers=(job.min_workers, job.workers) if job.min_workers is not None else job.workers,
            placement_strategy="STRICT_SPREAD" if job.healed else "PACK",
            elastic_resize_monitor_interval_s=RESIZES_S,
        ),
        run_config=ray.train.RunConfig(
            name="watched",
            storage_path=job.folder,
            failure_config=ray.train.FailureConfig(max_failures=-1 if job.healed else 1),
            callbacks=[RunStatusCallback(), watch] if job.healed else [watch],
        ),
    )
    result = trainer.fit()
    print(json.dumps({"metrics": result.metrics}))  # noqa: T201 - the output
    ray.shutdown()
    return 0


def _first_step() -> int:
    checkpoint = ray.train.get_checkpoint()
    if checkpoint is None:
        return 0
    with checkpoint.as_directory() as folder:
        return int(json.loads((Path(folder) / STATE).read_text())["step"]) + 1


def _record_start(job: TrainJob, rank: int, first_step: int) -> None:
    life = {
        "rank": rank,
        "pid": os.getpid(),
        "node_id": ray.get_runtime_context().get_node_id(),
        "first_step": first_step,
        "at": time.time(),
    }
    with job.lives.open("a", encoding="utf-8") as file:
        file.write(json.dumps(life) + "\n")


def _go_wrong(job: TrainJob, rank: int, step: int) -> None:
    if job.stays_away == (rank, step):
        while not job.go_on.exists():
            time.sleep(STEP_S)
    if job.ends == (rank, step) and not job.ended.exists():
        job.ended.touch()
        os._exit(1)


def _report(step: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / STATE).write_text(json.dumps({"step": step}))
        ray.train.report({"step": step}, checkpoint=ray.train.Checkpoint.from_directory(folder))


if __name__ == "__main__":
    document = json.loads(Path(sys.argv[1]).read_text())
    pairs = {name: tuple(document[name]) if document[name] else None for name in ("stays_away", "ends")}
    sys.exit(main(TrainJob(**document | pairs)))
