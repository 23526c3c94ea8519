"""Discovery of the Ray workers with work, and their process state from the kernel."""

from collections.abc import Callable
from pathlib import Path

import pytest

from deploy.ray_actor.workers import RayWorkers, workers_of
from faults.observations import Process

RAYLET = 100
Put = Callable[..., None]


@pytest.fixture
def put(tmp_path: Path) -> Put:
    """Write a process into the fake /proc, or update it."""

    def written(pid: int, title: str, *, state: str = "S", parent: int = RAYLET) -> None:
        folder = tmp_path / str(pid)
        folder.mkdir(exist_ok=True)
        fields = [str(pid), "(a (name)", state, str(parent), *["0"] * 9, "200", "100", *["0"] * 4, "7", *["0"] * 30]
        (folder / "stat").write_text(" ".join(fields))
        (folder / "cmdline").write_bytes(f"{title}\0\0\0".encode())
        (folder / "schedstat").write_text("1 2 3")

    return written


def gone(proc: Path, pid: int) -> None:
    for file in (proc / str(pid)).iterdir():
        file.unlink()
    (proc / str(pid)).rmdir()


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def workers(proc: Path, *, node: int = 0, slots: int = 8, clock: Clock | None = None) -> RayWorkers:
    return RayWorkers(node=node, slots=slots, raylet_pid=RAYLET, proc=proc, steady_s=clock or Clock())


def test_workers_are_the_children_of_the_raylet_with_work(put: Put, tmp_path: Path) -> None:
    put(11, "ray::ServeReplica:chat:on-h100.handle_request")
    put(12, "ray::RayTrainWorker")
    put(13, "ray::train(1)")
    put(21, "ray::IDLE")
    put(22, "ray::DashboardAgent")
    put(23, "ray::NodeActor.tend")
    put(24, "ray::ControllerActor")
    put(25, "/usr/bin/python")
    put(26, "ray::Other.go", parent=1)
    (tmp_path / "self").mkdir()
    (tmp_path / "27").mkdir()  # a process that is ending
    assert sorted(workers_of(RAYLET, proc=tmp_path)) == [
        (11, "ServeReplica:chat:on-h100"),
        (12, "RayTrainWorker"),
        (13, "train"),
    ]


def test_each_worker_is_a_rank_of_its_node_with_its_kernel_state(put: Put, tmp_path: Path) -> None:
    put(12, "ray::B", state="T")
    put(11, "ray::A", state="R")
    source = workers(tmp_path, node=3, slots=4)
    observations = source.poll(5.0)
    assert [(observation.rank, observation.node, observation.at_s) for observation in observations] == [
        (12, 3, 5.0),
        (13, 3, 5.0),
    ]
    values = [observation.values for observation in observations]
    assert all(isinstance(value, Process) for value in values)
    assert [(worker.rank, worker.pid, worker.name, worker.state) for worker in source.reports] == [
        (12, 11, "A", "R"),
        (13, 12, "B", "T"),
    ]
    source.close()


def test_an_ended_worker_is_not_reported_and_its_slot_is_reused(put: Put, tmp_path: Path) -> None:
    clock = Clock()
    for pid in (11, 12):
        put(pid, f"ray::W{pid}")
    source = workers(tmp_path, clock=clock)
    source.poll(1.0)
    gone(tmp_path, 11)
    put(13, "ray::W13")
    clock.now_s += 10.0
    assert [
        (observation.rank, worker.pid) for observation, worker in zip(source.poll(2.0), source.reports, strict=True)
    ] == [
        (1, 12),
        (0, 13),
    ]
    source.close()


def test_between_two_scans_only_known_workers_are_read(put: Put, tmp_path: Path) -> None:
    clock = Clock()
    put(11, "ray::A")
    source = workers(tmp_path, clock=clock)
    source.poll(1.0)
    put(12, "ray::B")
    put(11, "ray::A", state="T")
    clock.now_s += 0.25
    assert [(worker.pid, worker.state) for worker in (source.poll(1.25), source.reports)[1]] == [(11, "T")]
    clock.now_s += 10.0
    source.poll(11.0)
    assert [worker.pid for worker in source.reports] == [11, 12]
    source.close()


def test_more_workers_than_slots_are_counted(put: Put, tmp_path: Path) -> None:
    for pid in range(11, 16):
        put(pid, "ray::A")
    source = workers(tmp_path, slots=2)
    source.poll(1.0)
    assert ([worker.pid for worker in source.reports], source.left_out) == ([11, 12], 3)
    source.close()
