"""Recording of a Ray Train worker without Ray: waits, errors and step counts.

tests/cluster/test_ray_train.py runs a real worker.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fleetwright.collectives.rank_reporter import RankReporter
from fleetwright.collectives.sinks import FolderSink

ray_train = pytest.importorskip(
    "fleetwright.ray_train.collectives", reason="Ray Train is not installed", exc_type=ImportError
)


class Worker:
    """Stands in for a worker that Ray runs."""

    def __init__(self, folder: Path, *, reports: int = 0) -> None:
        self.folder = folder
        reporter = RankReporter(FolderSink(folder, rank=1), rank=1, heartbeat_s=60.0)
        self.watched = ray_train.WorkerWatch(reporter, reports=reports, close=lambda well: reporter.close(well=well))

    def lines(self, kind: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / f"{kind}_rank1.jsonl").read_text().splitlines()]


def raising() -> None:
    raise RuntimeError("the barrier was reset")


def wait_in(worker: Worker, op: str, work: Callable[[], None] = lambda: None) -> None:
    with worker.watched.waiting(op):
        work()


def test_a_wait_for_all_workers_is_recorded_as_a_collective_of_all_ranks(tmp_path: Path) -> None:
    worker = Worker(tmp_path)
    wait_in(worker, "barrier")
    wait_in(worker, "report")
    worker.watched.close(well=True)
    records = worker.lines("coll")
    assert [(line["seq"], line["op"], line["n"], "group" in line) for line in records] == [
        (1, "barrier", 0, False),
        (2, "report", 0, False),
    ]
    assert (worker.lines("hb")[-1]["phase"], worker.lines("hb")[-1]["done"]) == ("done", 2)


def test_a_wait_that_raises_is_reported_at_once_and_the_error_reaches_the_job(tmp_path: Path) -> None:
    worker = Worker(tmp_path)
    with pytest.raises(RuntimeError, match="reset"):
        wait_in(worker, "report", raising)
    assert worker.lines("hb")[-1]["phase"] == "failed"
    worker.watched.close(well=True)
    assert worker.lines("hb")[-1]["phase"] == "failed"
    assert worker.lines("coll") == []


@pytest.mark.parametrize(("well", "phase"), [(True, "done"), (False, "compute")])
def test_only_a_worker_that_ended_without_an_error_reports_done(tmp_path: Path, *, well: bool, phase: str) -> None:
    worker = Worker(tmp_path)
    wait_in(worker, "barrier")
    worker.watched.close(well=well)
    assert worker.lines("hb")[-1]["phase"] == phase


def test_reports_count_steps_from_the_previous_attempts_count(tmp_path: Path) -> None:
    worker = Worker(tmp_path, reports=4)
    worker.watched.step_over()
    worker.watched.step_over()
    worker.watched.close(well=True)
    assert worker.lines("hb")[-1]["step"] == 6


def test_the_jobs_own_step_count_is_not_changed(tmp_path: Path) -> None:
    worker = Worker(tmp_path)
    worker.watched.reporter.progress.step = 700
    worker.watched.step_over()
    worker.watched.close(well=True)
    assert worker.lines("hb")[-1]["step"] == 700


def test_without_a_destination_the_worker_trains_without_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLEETWRIGHT_COLLECTIVES", raising=False)
    monkeypatch.setattr(ray_train, "_of_torch", lambda _to, _heartbeat_s: None)
    monkeypatch.setattr(ray_train, "_of_ray", lambda to, _heartbeat_s: ray_train.sink_from(to, rank=0))
    assert ray_train.watch_worker(None, 0.5) == "no destination"
    callback = ray_train.WatchWorkers()
    with callback.on_report(), callback.on_checkpoint_sync():
        pass
    callback.before_worker_shutdown()
