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
# Rank 2 computes and does not join the collective that the others wait in.
HANGS = Story(nodes=4, behind=RANK, end_s=20.0)
SECRET = "a-secret-for-one-test"
BEAT = {"t": 1_800_000_000.0, "rank": RANK, "enq": 5, "done": 5, "op": None, "step": 4, "phase": "compute"}


def inbox_at(path: Path) -> Inbox:
    return Inbox(path, job_map=JobMap(4, (0, 1, 2, 3)), tally=ParseErrors())


def sink_to(path: Path, url: str, **options: str) -> tuple[InboxSink, HttpFallback]:
    fields = "".join(f",{name}={value}" for name, value in options.items())
    fallback = HttpFallback(parse_address(f"{url}{fields}"), rank=RANK)
    return InboxSink(str(path), rank=RANK, fallback=fallback), fallback


def put_records(sink: InboxSink, reported: list[Observation], *, zero_s: float) -> None:
    """Write the rank's own records to the sink."""
    for observation in reported:
        file, line = line_of(on_clock_of(observation, -zero_s))
        sink.put(file.partition("_")[0], line)
    sink.flush()


def post_records_of_other_ranks(monitor: Served, *, zero_s: float) -> None:
    poster = HttpPoster(monitor.url, path=PATH, headers={"Authorization": f"Bearer {SECRET}"}, timeout_s=PATIENCE_S)
    reported = [observation for observation in HANGS.observations() if observation.node != RANK]
    for body in batches(reported, zero_s=zero_s, sent_s=time.time()):
        assert poster.post(body)[0] == 204
    poster.close()


def isolations(monitor: Served) -> dict[int, dict[str, Any]]:
    """The diagnoses that justify an isolation, by node."""
    return {diagnosis["node"]: diagnosis for diagnosis in monitor.diagnoses() if diagnosis["isolate"]}


@contextmanager
def collecting(status: int = 204) -> Iterator[tuple[str, list[Batch]]]:
    """A server that keeps each batch it receives and responds with `status`."""
    received: list[Batch] = []

    def answer(_path: str, _headers: dict[str, str], body: bytes) -> Answer:
        received.append(decode(body, held_of=lambda _node, _session: None)[0])
        return status, b""

    with http_server(answer) as url:
        yield url, received


def test_records_go_only_to_the_inbox_while_it_accepts_them(tmp_path: Path) -> None:
    inbox = inbox_at(tmp_path / "inbox")
    sink, fallback = sink_to(tmp_path / "inbox", "http://127.0.0.1:1")
    for _ in range(2):
        sink.put("hb", BEAT)
        sink.flush()
        wait_for(lambda: inbox.poll(0.0), what="heartbeat")
    sink.close()
    inbox.close()
    assert (sink.counts, fallback.taken) == (RouteCounts(inbox=2), 0)


@pytest.mark.parametrize("socket_file_remains", [False, True])
def test_a_rank_posts_to_the_monitor_until_its_recorder_is_back(tmp_path: Path, *, socket_file_remains: bool) -> None:
    path, zero_s = tmp_path / "inbox", time.time() - HANGS.end_s
    (tmp_path / "token").write_text(f"{SECRET}\n")
    reported = [observation for observation in HANGS.observations() if observation.rank == RANK]
    before, after = reported[:30], reported[30:]
    with served(JobConfig(name="hang", nodes=4), zero_s=zero_s, token=SECRET) as monitor:
        sink, fallback = sink_to(path, monitor.url, token_file=str(tmp_path / "token"))
        inbox = inbox_at(path)
        put_records(sink, before, zero_s=zero_s)
        inbox.close()
        if socket_file_remains:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as killed:
                killed.bind(str(path))
        put_records(sink, after, zero_s=zero_s)
        assert sink.counts == RouteCounts(inbox=len(before), direct=len(after))
        wait_for(lambda: monitor.metric("observations_total") == len(after), what="records of the rank")
        post_records_of_other_ranks(monitor, zero_s=zero_s)
        wait_for(lambda: isolations(monitor), what="diagnosis")
        diagnosis = isolations(monitor)[RANK]
        back = inbox_at(path)
        sink.put("hb", BEAT)
        sink.flush()
        wait_for(lambda: back.poll(0.0), what="heartbeat by the inbox")
        sink.close()
        back.close()
    assert diagnosis["fault"] == "noncomm-hang"
    assert "heartbeat" in diagnosis["evidence"]  # silence alone does not justify an isolation
    assert sink.counts == RouteCounts(inbox=len(before) + 1, direct=len(after))
    assert (fallback.taken, fallback.lost) == (len(after), 0)


def test_closing_the_watch_posts_the_final_heartbeat_to_the_monitor(tmp_path: Path) -> None:
    with collecting() as (url, received):
        dist = fake_dist()
        watched = watch(dist, to=f"unix:{tmp_path}/none,{url},ranks_per_node=1", rank=RANK, heartbeat_s=60.0)
        assert dist.ProcessGroup().allreduce([Tensor()]).wait()
        watched.close()
    assert {(batch.node, batch.rank) for batch in received} == {(RANK, RANK)}
    beats = [
        observation.values
        for batch in received
        for observation in batch.others
        if isinstance(observation.values, Heartbeat)
    ]
    assert beats[-1].phase == "done"
    assert watched.tally.failed == 0


def test_a_rejected_token_only_loses_the_records(tmp_path: Path) -> None:
    with collecting(status=401) as (url, _came):
        sink, fallback = sink_to(tmp_path / "none", url)
        sink.put("hb", BEAT)
        sink.flush()
        sink.close()
    assert (sink.counts, fallback.lost) == (RouteCounts(direct=1), 1)


def test_an_unreachable_monitor_does_not_affect_the_job(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    dist = fake_dist()
    watched = watch(dist, to=f"unix:{tmp_path}/none,http://127.0.0.1:{port}", rank=RANK, heartbeat_s=60.0)
    assert dist.ProcessGroup().allreduce([Tensor()]).wait()
    watched.close()
    assert watched.tally.failed == 0


def test_close_does_not_wait_for_an_unresponsive_monitor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_fallback, "CLOSE_S", 0.01)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sink, fallback = sink_to(tmp_path / "none", f"http://127.0.0.1:{listener.getsockname()[1]}")
        sink.put("hb", BEAT)
        sink.flush()
        sink.close()
        assert fallback._thread is not None
        assert fallback._thread.is_alive()
        assert fallback._thread.daemon
    fallback._thread.join(timeout=PATIENCE_S)


def test_a_full_fallback_queue_refuses_records_and_counts_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_fallback, "MAX_WAITING", 0)
    sink, fallback = sink_to(tmp_path / "none", "http://127.0.0.1:1")
    sink.put("hb", BEAT)
    with pytest.raises(FileNotFoundError):
        sink.flush()
    sink.close()
    assert (sink.counts, fallback.taken) == (RouteCounts(refused=1), 0)


def test_unreadable_lines_are_counted_as_lost() -> None:
    with collecting() as (url, received):
        fallback = HttpFallback(MonitorAddress(url=url), rank=RANK)
        assert fallback.take([b'{"k":"hb","rank":2}', b"no line"])
        fallback.close()
    assert (received, fallback.lost) == ([], 2)


@pytest.mark.parametrize(
    ("address", "names"),
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
def test_an_invalid_monitor_address_is_reported(address: str, names: str) -> None:
    with pytest.raises(ValueError, match=names):
        parse_address(address)


def test_ranks_of_a_node_share_the_recorders_byte_budget() -> None:
    assert parse_address("http://watcher:9404,ranks_per_node=8").budget_bytes_per_s * 8 == pytest.approx(1000.0)


def test_importing_collectives_loads_neither_numpy_nor_structlog() -> None:
    code = "import sys; import fleetwright.collectives as c; print(*sorted({'numpy', 'structlog'} & set(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert loaded.stdout.split() == []
