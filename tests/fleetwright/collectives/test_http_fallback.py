"""A rank whose inbox refuses posts to the monitor: real sockets, the real monitor, and no effect on the job."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from deploy.fault_monitor.job_config import JobConfig
from deploy.telemetry.batch_codec import Batch, decode
from deploy.telemetry.folder import line_of
from deploy.telemetry.inbox import Inbox
from faults.observations import Heartbeat, Observation, on_clock_of
from faults.readers import ParseErrors
from faults.readers.job_map import JobMap
from fleetwright.collectives import http_fallback, watch
from fleetwright.collectives.http_fallback import HttpFallback, MonitorAddress, parse_address
from fleetwright.collectives.sinks import InboxSink, RouteCounts
from fleetwright.telemetry.batch_format import PATH
from fleetwright.telemetry.batch_sender import HttpPoster
from tests.deploy.fault_monitor.batches import batches
from tests.deploy.fault_monitor.served import Served, served
from tests.deploy.telemetry.servers import Answer, http_server
from tests.faults.stories import Story
from tests.fleetwright.collectives.test_watch import Tensor, fake_dist
from tests.testbed.waiting import PATIENCE_S, wait_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Unix datagrams as Linux has them")
RANK = 2
HANGS = Story(nodes=4, behind=RANK, end_s=20.0)  # rank 2 computes and does not call what the others wait in
SECRET = "a-secret-for-one-test"
BEAT = {"t": 1_800_000_000.0, "rank": RANK, "enq": 5, "done": 5, "op": None, "step": 4, "phase": "compute"}


def inbox_at(path: Path) -> Inbox:
    return Inbox(path, job_map=JobMap(4, (0, 1, 2, 3)), tally=ParseErrors())


def sink_to(path: Path, url: str, **said: str) -> tuple[InboxSink, HttpFallback]:
    fields = "".join(f",{name}={value}" for name, value in said.items())
    way = HttpFallback(parse_address(f"{url}{fields}"), rank=RANK)
    return InboxSink(str(path), rank=RANK, fallback=way), way


def tell(sink: InboxSink, reported: list[Observation], *, zero_s: float) -> None:
    """What the rank itself would say of it."""
    for seen in reported:
        file, line = line_of(on_clock_of(seen, -zero_s))
        sink.put(file.partition("_")[0], line)
    sink.flush()


def tell_of_others(watcher: Served, *, zero_s: float) -> None:
    poster = HttpPoster(watcher.url, path=PATH, headers={"Authorization": f"Bearer {SECRET}"}, timeout_s=PATIENCE_S)
    reported = [seen for seen in HANGS.told() if seen.node != RANK]
    for body in batches(reported, zero_s=zero_s, sent_s=time.time()):
        assert poster.post(body)[0] == 204
    poster.close()


def isolations(watcher: Served) -> dict[int, dict[str, Any]]:
    """By node: the diagnoses that justify an isolation."""
    return {diagnosis["node"]: diagnosis for diagnosis in watcher.diagnoses() if diagnosis["isolate"]}


@contextmanager
def collecting(status: int = 204) -> Iterator[tuple[str, list[Batch]]]:
    """A server that notes every batch, and what it answers."""
    came: list[Batch] = []

    def answer(_path: str, _headers: dict[str, str], body: bytes) -> Answer:
        came.append(decode(body, held_of=lambda _node, _session: None)[0])
        return status, b""

    with http_server(answer) as url:
        yield url, came


def test_while_the_inbox_takes_records_nothing_goes_directly(tmp_path: Path) -> None:
    inbox = inbox_at(tmp_path / "inbox")
    sink, way = sink_to(tmp_path / "inbox", "http://127.0.0.1:1")
    for _ in range(2):
        sink.put("hb", BEAT)
        sink.flush()
        wait_for(lambda: inbox.poll(0.0), what="heartbeat")
    sink.close()
    inbox.close()
    assert (sink.counts, way.taken) == (RouteCounts(inbox=2), 0)


@pytest.mark.parametrize("leaves_its_path", [False, True])
def test_a_rank_whose_recorder_is_gone_is_known_until_it_is_back_and_then_by_it(
    tmp_path: Path, *, leaves_its_path: bool
) -> None:
    path, zero_s = tmp_path / "inbox", time.time() - HANGS.end_s
    (tmp_path / "token").write_text(f"{SECRET}\n")
    reported = [seen for seen in HANGS.told() if seen.rank == RANK]
    before, after = reported[:30], reported[30:]
    with served(JobConfig(name="told", nodes=4), zero_s=zero_s, token=SECRET) as watcher:
        sink, way = sink_to(path, watcher.url, token_file=str(tmp_path / "token"))
        inbox = inbox_at(path)
        tell(sink, before, zero_s=zero_s)
        inbox.close()
        if leaves_its_path:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as killed:
                killed.bind(str(path))
        tell(sink, after, zero_s=zero_s)
        assert sink.counts == RouteCounts(inbox=len(before), direct=len(after))
        wait_for(lambda: watcher.metric("observations_total") == len(after), what="records of the rank")
        tell_of_others(watcher, zero_s=zero_s)
        wait_for(lambda: isolations(watcher), what="verdict")
        diagnosis = isolations(watcher)[RANK]
        back = inbox_at(path)
        sink.put("hb", BEAT)
        sink.flush()
        wait_for(lambda: back.poll(0.0), what="heartbeat by the inbox")
        sink.close()
        back.close()
    assert diagnosis["fault"] == "noncomm-hang"
    assert "heartbeat" in diagnosis["evidence"]  # its own word: its silence alone would isolate nobody
    assert sink.counts == RouteCounts(inbox=len(before) + 1, direct=len(after))
    assert (way.taken, way.lost) == (len(after), 0)


def test_the_end_of_a_job_sends_its_last_word_directly(tmp_path: Path) -> None:
    with collecting() as (url, came):
        dist = fake_dist()
        watched = watch(dist, to=f"unix:{tmp_path}/none,{url},ranks_per_node=1", rank=RANK, heartbeat_s=60.0)
        assert dist.ProcessGroup().allreduce([Tensor()]).wait()
        watched.close()
    assert {(batch.node, batch.rank) for batch in came} == {(RANK, RANK)}
    beats = [seen.values for batch in came for seen in batch.others if isinstance(seen.values, Heartbeat)]
    assert beats[-1].phase == "done"
    assert watched.tally.failed == 0


def test_a_wrong_secret_costs_the_records_and_nothing_else(tmp_path: Path) -> None:
    with collecting(status=401) as (url, _came):
        sink, way = sink_to(tmp_path / "none", url)
        sink.put("hb", BEAT)
        sink.flush()
        sink.close()
    assert (sink.counts, way.lost) == (RouteCounts(direct=1), 1)


def test_a_watcher_that_is_away_costs_the_records_and_nothing_else(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    dist = fake_dist()
    watched = watch(dist, to=f"unix:{tmp_path}/none,http://127.0.0.1:{port}", rank=RANK, heartbeat_s=60.0)
    assert dist.ProcessGroup().allreduce([Tensor()]).wait()
    watched.close()
    assert watched.tally.failed == 0


def test_the_end_of_a_job_does_not_wait_for_a_watcher_that_never_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_fallback, "CLOSE_S", 0.01)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sink, way = sink_to(tmp_path / "none", f"http://127.0.0.1:{listener.getsockname()[1]}")
        sink.put("hb", BEAT)
        sink.flush()
        sink.close()
        assert way._thread is not None
        assert way._thread.is_alive()
        assert way._thread.daemon
    way._thread.join(timeout=PATIENCE_S)


def test_what_has_no_room_on_the_second_way_is_refused_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_fallback, "MAX_WAITING", 0)
    sink, way = sink_to(tmp_path / "none", "http://127.0.0.1:1")
    sink.put("hb", BEAT)
    with pytest.raises(FileNotFoundError):
        sink.flush()
    sink.close()
    assert (sink.counts, way.taken) == (RouteCounts(refused=1), 0)


def test_a_line_that_nobody_can_read_is_lost_alone() -> None:
    with collecting() as (url, came):
        way = HttpFallback(MonitorAddress(url=url), rank=RANK)
        assert way.take([b'{"k":"hb","rank":2}', b"no line"])
        way.close()
    assert (came, way.lost) == ([], 2)


@pytest.mark.parametrize(
    ("said", "names"),
    [
        ("", "monitor"),
        ("ftp://watcher", "monitor"),
        ("http://watcher:99999", "monitor"),
        ("http://[", "monitor"),
        ("http://watcher,ranks_per_node=0", "ranks_per_node '0'.*1 to 64"),
        ("http://watcher,ranks_per_node=65", "ranks_per_node '65'"),
        ("http://watcher,ranks_per_node=many", "ranks_per_node 'many'"),
        ("http://watcher,token_file=/proc/none", "token_file /proc/none"),
        ("http://watcher,node=3", "'node=3' after the monitor: expected ranks_per_node=NUMBER and token_file=FILE"),
        ("http://watcher,ranks_per_node=2,ranks_per_node=2", "at most once"),
    ],
)
def test_what_is_said_wrong_is_named(said: str, names: str) -> None:
    with pytest.raises(ValueError, match=names):
        parse_address(said)


def test_ranks_of_a_node_share_what_their_recorder_had() -> None:
    assert parse_address("http://watcher:9404,ranks_per_node=8").budget_bytes_per_s * 8 == pytest.approx(1000.0)


def test_a_rank_loads_nothing_of_it_before_it_is_needed() -> None:
    said = "import sys; import fleetwright.collectives as c; print(*sorted({'numpy', 'structlog'} & set(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", said], check=True, capture_output=True, text=True)
    assert loaded.stdout.split() == []
