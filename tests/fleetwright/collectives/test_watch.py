"""Recording of a stand-in for torch.distributed: the records, and no effect on the job."""

import json
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fleetwright.collectives import Watch, watch
from fleetwright.collectives.progress import group_text


class Work:
    """Completes in `wait`, which raises after a lost connection, as gloo does."""

    def __init__(self, *, lost: bool = False) -> None:
        self.over = self.lost = lost

    def wait(self) -> bool:
        if self.lost:
            raise RuntimeError("connection closed by peer")
        self.over = True
        return True

    def is_completed(self) -> bool:
        return self.over


class Tensor:
    nbytes = 64
    is_cuda = False


def fake_dist() -> Any:
    class ProcessGroup:
        group_name = "0"
        lost = False

        def allreduce(self, tensors: list[Tensor]) -> Work:
            if not tensors:
                raise ValueError("no tensors")
            return Work(lost=self.lost)

        def send(self, _tensors: list[Tensor], _to: int, _tag: int) -> Work:
            return Work(lost=self.lost)

        def recv(self, _tensors: list[Tensor], _source: int, _tag: int) -> Work:
            return Work(lost=self.lost)

    return SimpleNamespace(
        ProcessGroup=ProcessGroup,
        Work=Work,
        get_rank=lambda: 1,
        get_world_size=lambda: 4,
        get_process_group_ranks=lambda _group: [0, 1, 2, 3],
    )


@pytest.fixture
def dist() -> Any:
    return fake_dist()


def lines(folder: Path, kind: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / f"{kind}_rank1.jsonl").read_text().splitlines()]


def started(dist: Any, folder: Path) -> Watch:
    return watch(dist, to=str(folder), heartbeat_s=60.0)


def test_a_collective_is_recorded_after_its_wait(dist: Any, tmp_path: Path) -> None:
    watched = started(dist, tmp_path)
    watched.step(7)
    assert dist.ProcessGroup().allreduce([Tensor(), Tensor()]).wait()
    watched.close()
    (reported,) = lines(tmp_path, "coll")
    assert (reported["seq"], reported["op"], reported["n"], reported["step"]) == (1, "all_reduce", 128, 7)
    assert reported["t1"] >= reported["t0"]
    assert lines(tmp_path, "hb")[-1] | {"t": 0} == {
        "t": 0, "rank": 1, "enq": 1, "done": 1, "op": None, "step": 7, "phase": "done",
    }  # fmt: skip


def test_an_unfinished_collective_shows_in_the_heartbeat(dist: Any, tmp_path: Path) -> None:
    watched = started(dist, tmp_path)
    work = dist.ProcessGroup().allreduce([Tensor()])
    watched.close()
    beat = lines(tmp_path, "hb")[-1]
    assert (beat["enq"], beat["done"], beat["op"], beat["phase"]) == (1, 0, "all_reduce", "comm")
    assert isinstance(work, Work)


def test_a_receive_and_a_send_are_recorded_as_one_transfer(dist: Any, tmp_path: Path) -> None:
    watched, group = started(dist, tmp_path), dist.ProcessGroup()
    received, sent = group.recv([Tensor()], 0, 0), group.send([Tensor()], 2, 0)
    received.wait()
    sent.wait()
    watched.close()
    (reported,) = lines(tmp_path, "coll")
    assert (reported["op"], reported["src"], reported["dst"], reported["n"]) == ("p2p", 0, 2, 64)
    assert reported["t0"] <= reported["tr"] <= reported["ts"]


def test_a_collective_that_fails_to_start_raises_and_is_not_counted(dist: Any, tmp_path: Path) -> None:
    watched = started(dist, tmp_path)
    with pytest.raises(ValueError, match="no tensors"):
        dist.ProcessGroup().allreduce([])
    watched.close()
    beat = lines(tmp_path, "hb")[-1]
    assert (beat["enq"], beat["done"], beat["phase"]) == (0, 0, "done")  # the collective did not start


def test_a_collective_that_raises_is_reported_at_once_and_not_counted_as_done(dist: Any, tmp_path: Path) -> None:
    watched, group = started(dist, tmp_path), dist.ProcessGroup()
    group.allreduce([Tensor()]).wait()
    group.lost = True
    work = group.allreduce([Tensor()])
    with pytest.raises(RuntimeError, match="closed by peer"):
        work.wait()
    (beat,) = lines(tmp_path, "hb")  # written before the thread's next period: the process may exit first
    assert (beat["enq"], beat["done"], beat["op"], beat["phase"]) == (2, 1, "all_reduce", "failed")
    watched.close()
    assert lines(tmp_path, "hb")[-1]["phase"] == "failed"
    assert [reported["seq"] for reported in lines(tmp_path, "coll")] == [1]


def test_a_failed_collective_without_a_wait_is_reported_at_close(dist: Any, tmp_path: Path) -> None:
    watched, group = started(dist, tmp_path), dist.ProcessGroup()
    group.lost = True
    group.allreduce([Tensor()])
    watched.close()
    beat = lines(tmp_path, "hb")[-1]
    assert (beat["enq"], beat["done"], beat["phase"]) == (1, 0, "failed")


def test_a_transfer_that_raises_is_not_recorded(dist: Any, tmp_path: Path) -> None:
    watched, group = started(dist, tmp_path), dist.ProcessGroup()
    group.lost = True
    received, sent = group.recv([Tensor()], 0, 0), group.send([Tensor()], 2, 0)
    for half in (received, sent):
        with pytest.raises(RuntimeError, match="closed by peer"):
            half.wait()
    watched.close()
    assert lines(tmp_path, "coll") == []
    assert {beat["phase"] for beat in lines(tmp_path, "hb")} == {"failed"}


def test_a_job_that_continues_after_a_failure_is_no_longer_reported_failed(dist: Any, tmp_path: Path) -> None:
    watched, group = started(dist, tmp_path), dist.ProcessGroup()
    group.lost = True
    with pytest.raises(RuntimeError):
        group.allreduce([Tensor()]).wait()
    group.lost = False
    group.allreduce([Tensor()]).wait()
    watched.close()
    beat = lines(tmp_path, "hb")[-1]
    assert (beat["enq"], beat["done"], beat["phase"]) == (2, 2, "done")


def test_a_rank_that_ends_with_its_own_exception_is_not_reported_done(dist: Any, tmp_path: Path) -> None:
    watched = started(dist, tmp_path)
    dist.ProcessGroup().allreduce([Tensor()]).wait()
    with pytest.raises(KeyError), closing(watched):
        raise KeyError("batch")
    assert lines(tmp_path, "hb")[-1]["phase"] == "compute"


def test_internal_errors_are_counted_and_do_not_reach_the_job(dist: Any, tmp_path: Path) -> None:
    watched = started(dist, tmp_path)
    dist.get_process_group_ranks = None
    assert dist.ProcessGroup().allreduce([Tensor()]).wait()
    watched.close()
    assert watched.tally.failed == 1


def test_closing_restores_the_patched_torch_methods(dist: Any, tmp_path: Path) -> None:
    before = dict(vars(dist.ProcessGroup))
    watched = started(dist, tmp_path)
    assert watch(dist) is watched
    watched.close()
    assert dict(vars(dist.ProcessGroup)) == before


def test_an_unwritable_destination_disables_the_watch(dist: Any) -> None:
    assert not watch(dist, to="/proc/none").active


@pytest.mark.parametrize(
    ("ranks", "text"),
    [([0, 1, 2, 3], ""), ([0, 1, 2], "0-2"), ([0, 2, 4], "0-4:2"), ([1, 3], "1,3"), ([0, 1, 3], "0,1,3"), ([2], "2")],
)
def test_groups_are_named_by_their_ranks(ranks: list[int], text: str) -> None:
    assert group_text(ranks, world=4) == text
