"""Sources beside sockets, each against a real other end on loopback or in a folder."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from deploy.telemetry.exporters import dcgm_source, scrape, xpu_timer_source
from deploy.telemetry.flight_recorder import FlightSource
from deploy.telemetry.inbox import Inbox, LateInbox
from deploy.telemetry.ports import PortSource
from deploy.telemetry.ras import RasSource
from deploy.telemetry.sources import ThreadedSource
from faults.observations import DeviceCounter, Heartbeat, Observation, OperationCounts, Port
from faults.readers import ParseErrors
from faults.readers.job_map import JobMap
from fleetwright.collectives.sinks import InboxSink
from tests.deploy.telemetry.servers import Answer, http_server, raw_server
from tests.testbed.waiting import wait_for

PLACES = JobMap(2, (0, 1), hosts={"127.0.0.1": 0, "10.0.0.2": 1})
BEAT = {"t": 5.0, "rank": 1, "enq": 3, "done": 2, "op": "all_reduce", "step": 1, "phase": "comm"}
XID = 'DCGM_FI_DEV_XID_ERRORS{{gpu="0",UUID="GPU-1",device="nvidia0"}} {}\n'


@pytest.fixture
def inbox(tmp_path: Path, tally: ParseErrors) -> Iterator[Inbox]:
    made = Inbox(tmp_path / "inbox", job_map=PLACES, tally=tally)
    yield made
    made.close()


def test_what_a_rank_says_is_heard(inbox: Inbox, tmp_path: Path) -> None:
    with closing(InboxSink(str(tmp_path / "inbox"), rank=1)) as sink:
        sink.put("hb", BEAT)
        sink.flush()
    (seen,) = wait_for(lambda: inbox.poll(0.0), what="heartbeat")
    assert (seen.node, seen.rank, seen.values) == (1, 1, Heartbeat(3, 2, "all_reduce", 1, "comm"))


def test_what_anybody_else_says_is_counted(inbox: Inbox, tmp_path: Path, tally: ParseErrors) -> None:
    lines = [b"{", b"[1]", b'{"k":"hb"}', b'{"k":"hb","rank":"1"}', b'{"k":"rm","rank":1}', b"[" * 60_000]
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as stranger:
        for line in lines:
            stranger.sendto(line, str(tmp_path / "inbox"))
    seen: list[Observation] = []

    def counted() -> int:
        seen.extend(inbox.poll(0.0))
        return sum(tally.counts().values())

    wait_for(counted, lambda count: count == len(lines), what="six malformed records")
    assert seen == []


def test_an_empty_datagram_is_counted_and_what_follows_is_heard(
    inbox: Inbox, tmp_path: Path, tally: ParseErrors
) -> None:
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as stranger:
        stranger.sendto(b"", str(tmp_path / "inbox"))
    with closing(InboxSink(str(tmp_path / "inbox"), rank=1)) as sink:
        sink.put("hb", BEAT)
        sink.flush()
    (seen,) = wait_for(lambda: inbox.poll(0.0), what="heartbeat")
    assert seen.rank == 1
    assert tally.counts() == {"inbox: empty datagram": 1}


def test_the_path_is_taken_away_at_the_end(tmp_path: Path, tally: ParseErrors) -> None:
    Inbox(tmp_path / "inbox", job_map=PLACES, tally=tally).close()
    assert not (tmp_path / "inbox").exists()


def test_what_a_killed_recorder_left_at_the_path_goes(tmp_path: Path, tally: ParseErrors) -> None:
    path = tmp_path / "inbox"
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as dead:
        dead.bind(str(path))
    with closing(Inbox(path, job_map=PLACES, tally=tally)) as inbox, closing(InboxSink(str(path), rank=1)) as sink:
        sink.put("hb", BEAT)
        sink.flush()
        assert wait_for(lambda: inbox.poll(0.0), what="heartbeat")


def test_an_inbox_that_is_another_recorders_stays_its(inbox: Inbox, tmp_path: Path, tally: ParseErrors) -> None:
    path = tmp_path / "inbox"
    with pytest.raises(FileExistsError, match=f"{path} is a socket that another process listens to"):
        Inbox(path, job_map=PLACES, tally=tally)
    with closing(InboxSink(str(path), rank=1)) as sink:
        sink.put("hb", BEAT)
        sink.flush()
    assert wait_for(lambda: inbox.poll(0.0), what="heartbeat")


@pytest.mark.parametrize("said", ["is a file", "is a folder", "is a symbolic link"])
def test_what_is_no_socket_stays_at_the_path(tmp_path: Path, tally: ParseErrors, said: str) -> None:
    path, kept = tmp_path / "inbox", tmp_path / "kept"
    kept.write_text("precious")
    if said == "is a folder":
        path.mkdir()
    elif said == "is a file":
        path.write_text("precious")
    else:
        path.symlink_to(kept)
    with pytest.raises(FileExistsError, match=f"{path} {said}"):
        Inbox(path, job_map=PLACES, tally=tally)
    assert sorted(found.name for found in tmp_path.iterdir()) == ["inbox", "kept"]
    assert path.is_dir() or path.read_text() == "precious"


def test_a_late_inbox_waits_for_its_path(inbox: Inbox, tmp_path: Path, tally: ParseErrors) -> None:
    path = tmp_path / "inbox"
    with closing(LateInbox(path, job_map=PLACES, tally=tally)) as late:
        with pytest.raises(FileExistsError, match="another process listens to"):
            late.poll(0.0)
        inbox.close()
        assert late.poll(0.0) == []
        with closing(InboxSink(str(path), rank=1)) as sink:
            sink.put("hb", BEAT)
            sink.flush()
        assert wait_for(lambda: late.poll(0.0), what="heartbeat")
    assert not path.exists()


def test_an_exporter_tells_a_value_once_and_again_when_it_changes(tally: ParseErrors) -> None:
    codes = iter(["0", "0", "79"])

    def reply(path: str, _headers: dict[str, str], _body: bytes) -> Answer:
        assert path == "/metrics"
        return 200, XID.format(next(codes)).encode()

    with http_server(reply) as url:
        source = dcgm_source(f"{url}/metrics", node=1, job_map=PLACES, tally=tally)
        reported = [[seen.values for seen in source.poll(float(at))] for at in range(3)]
    assert [len(values) for values in reported] == [1, 0, 1]
    (xid,) = reported[2]
    assert isinstance(xid, DeviceCounter)
    assert (xid.what, xid.code) == ("xid", 79)


@pytest.mark.parametrize("status", [404, 500])
def test_an_exporter_that_answers_otherwise_is_a_failure(status: int, tally: ParseErrors) -> None:
    with http_server(lambda *_: (status, b"no")) as url, pytest.raises(OSError, match=f"answered {status}"):
        xpu_timer_source(url, job_map=PLACES, tally=tally).poll(0.0)


def test_an_exporter_that_is_none_is_a_failure() -> None:
    with (
        raw_server(lambda connection: connection.sendall(b"hello\r\n")) as (host, port),
        pytest.raises(OSError, match="BadStatusLine"),
    ):
        list(scrape(f"http://{host}:{port}/metrics"))


def test_a_scrape_that_breaks_off_is_a_failure_and_what_it_said_is_told_by_the_next(tally: ParseErrors) -> None:
    body = XID.format(79).encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
    answers = iter([head + body[:-1], head + body])

    def serve(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(next(answers))

    with raw_server(serve) as (host, port):
        source = dcgm_source(f"http://{host}:{port}/metrics", node=1, job_map=PLACES, tally=tally)
        with pytest.raises(OSError, match="truncated"):
            source.poll(1.0)
        (seen,) = source.poll(2.0)
    assert isinstance(seen.values, DeviceCounter)
    assert seen.values.code == 79


def ras_server(said: bytes, requested: list[bytes]) -> Callable[[socket.socket], None]:
    def serve(connection: socket.socket) -> None:
        question = b""
        while question.count(b"\n") < 2:
            question += connection.recv(1024)
        requested.append(question)
        connection.sendall(b"OK\n" + said)

    return serve


def test_ras_is_asked_for_json_and_what_it_says_of_nothing_is_counted(tally: ParseErrors) -> None:
    requested: list[bytes] = []
    with raw_server(ras_server(b"NCCL version 2.28.7 ...\n", requested)) as address:
        assert RasSource(job_map=PLACES, tally=tally, address=address).poll(1.0) == []
    assert requested == [b"SET FORMAT json\nVERBOSE STATUS\n"]
    assert sum(tally.counts().values()) > 0


def test_counts_of_ras_become_observations(tally: ParseErrors) -> None:
    ranks = [
        {"rank": at, "host": host, "pid": 9, "cuda_dev": 0, "nvml_dev": 0, "collective_counts": {"AllReduce": 40 + at}}
        for at, host in enumerate(PLACES.hosts)
    ]
    said = {"nccl_version": "2.30.7", "communicators": [{"hash": "0x2", "size": 2, "ranks": ranks}], "ras": {}}
    with raw_server(ras_server(json.dumps(said).encode(), [])) as address:
        seen = RasSource(job_map=PLACES, tally=tally, address=address).poll(1.0)
    counts = [(one.rank, one.values.ops) for one in seen if isinstance(one.values, OperationCounts)]
    assert counts == [(0, (("AllReduce", 40),)), (1, (("AllReduce", 41),))]


def test_ras_that_is_away_is_a_failure(tally: ParseErrors) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = ("127.0.0.1", server.getsockname()[1])
    with pytest.raises(ConnectionError):
        RasSource(job_map=PLACES, tally=tally, address=address).poll(1.0)


DUMP = {
    "version": "2.10",
    "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
    "pg_status": {"0": {"last_enqueued_collective": 7, "last_started_collective": 7, "last_completed_collective": 6}},
    "entries": [],
}


def test_a_dump_is_read_once_when_it_has_stopped_growing(tmp_path: Path, tally: ParseErrors) -> None:
    source = FlightSource(tmp_path, job_map=PLACES, tally=tally)
    path = tmp_path / "fr_rank1.json"
    text = json.dumps(DUMP)
    path.write_text(text[:50])
    assert source.poll(1.0) == []
    path.write_text(text)
    assert source.poll(2.0) == []  # it grew
    seen = source.poll(3.0)
    assert [(one.rank, one.at_s) for one in seen] == [(1, 3.0)]
    assert source.poll(4.0) == []


def test_a_dump_that_cannot_be_read_is_counted_tried_again_and_costs_the_others_nothing(
    tmp_path: Path, tally: ParseErrors, monkeypatch: pytest.MonkeyPatch
) -> None:
    for rank in (0, 1):
        (tmp_path / f"fr_rank{rank}.json").write_text(json.dumps(DUMP))
    opened, broken = Path.open, [True]

    def refusing(path: Path, *args: Any, **kwargs: Any) -> Any:
        if path.name == "fr_rank0.json" and broken[0]:
            raise PermissionError("not yours")
        return opened(path, *args, **kwargs)

    monkeypatch.setattr(Path, "open", refusing)
    source = FlightSource(tmp_path, job_map=PLACES, tally=tally)
    assert source.poll(1.0) == []
    assert [seen.rank for seen in source.poll(2.0)] == [1]
    assert tally.counts() == {"fr: unreadable dump": 1}
    broken[0] = False
    assert [seen.rank for at_s in (3.0, 4.0) for seen in source.poll(at_s)] == [0]


def test_ports_are_read_from_sysfs(tmp_path: Path, tally: ParseErrors) -> None:
    port = tmp_path / "mlx5_0/ports/1"
    for name, text in {"state": "4: ACTIVE\n", "rate": "400 Gb/sec (4X NDR)\n", "counters/link_downed": "3\n"}.items():
        (port / name).parent.mkdir(parents=True, exist_ok=True)
        (port / name).write_text(text)
    (seen,) = PortSource(node=1, tally=tally, root=tmp_path).poll(2.0)
    assert isinstance(seen.values, Port)
    assert (seen.node, seen.values.device, seen.values.counters) == (1, "mlx5_0", (("link_downed", 3),))


class Slow:
    """Takes its time, and fails once."""

    name, period_s = "slow", 0.01

    def __init__(self) -> None:
        self.go, self.closed = threading.Event(), False
        self.looks = 0

    def poll(self, now_s: float) -> list[Observation]:
        self.go.wait()
        self.looks += 1
        if self.looks == 1:
            raise OSError("not yet")
        return [Observation(now_s, 0, OperationCounts("g", 1, (), "ok"), rank=0)]

    def close(self) -> None:
        self.closed = True


def test_a_slow_source_never_holds_up_a_look_and_its_failure_is_told_once() -> None:
    slow = Slow()
    threaded = ThreadedSource(slow, take_period_s=0.25)
    began_s = time.monotonic()
    assert threaded.poll(0.0) == []
    assert time.monotonic() - began_s < 1.0
    slow.go.set()
    wait_for(lambda: slow.looks > 1, what="second look")
    with pytest.raises(OSError, match="not yet"):
        threaded.poll(0.0)
    assert wait_for(lambda: threaded.poll(0.0), what="observations")
    threaded.close()
    assert slow.closed
