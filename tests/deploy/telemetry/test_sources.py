"""Sources other than sockets, each with a real counterpart on loopback or in a folder."""

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


def test_records_of_a_rank_are_received(inbox: Inbox, tmp_path: Path) -> None:
    with closing(InboxSink(str(tmp_path / "inbox"), rank=1)) as sink:
        sink.put("hb", BEAT)
        sink.flush()
    (observation,) = wait_for(lambda: inbox.poll(0.0), what="heartbeat")
    assert (observation.node, observation.rank, observation.values) == (1, 1, Heartbeat(3, 2, "all_reduce", 1, "comm"))


def test_invalid_records_are_counted(inbox: Inbox, tmp_path: Path, tally: ParseErrors) -> None:
    lines = [b"{", b"[1]", b'{"k":"hb"}', b'{"k":"hb","rank":"1"}', b'{"k":"rm","rank":1}', b"[" * 60_000]
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as client:
        for line in lines:
            client.sendto(line, str(tmp_path / "inbox"))
    observations: list[Observation] = []

    def counted() -> int:
        observations.extend(inbox.poll(0.0))
        return sum(tally.counts().values())

    wait_for(counted, lambda count: count == len(lines), what="six malformed records")
    assert observations == []


def test_an_empty_datagram_is_counted_and_later_records_are_received(
    inbox: Inbox, tmp_path: Path, tally: ParseErrors
) -> None:
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as client:
        client.sendto(b"", str(tmp_path / "inbox"))
    with closing(InboxSink(str(tmp_path / "inbox"), rank=1)) as sink:
        sink.put("hb", BEAT)
        sink.flush()
    (observation,) = wait_for(lambda: inbox.poll(0.0), what="heartbeat")
    assert observation.rank == 1
    assert tally.counts() == {"inbox: empty datagram": 1}


def test_the_socket_path_is_removed_at_the_end(tmp_path: Path, tally: ParseErrors) -> None:
    Inbox(tmp_path / "inbox", job_map=PLACES, tally=tally).close()
    assert not (tmp_path / "inbox").exists()


def test_the_socket_of_a_killed_recorder_is_replaced(tmp_path: Path, tally: ParseErrors) -> None:
    path = tmp_path / "inbox"
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as dead:
        dead.bind(str(path))
    with closing(Inbox(path, job_map=PLACES, tally=tally)) as inbox, closing(InboxSink(str(path), rank=1)) as sink:
        sink.put("hb", BEAT)
        sink.flush()
        assert wait_for(lambda: inbox.poll(0.0), what="heartbeat")


def test_the_inbox_of_another_running_recorder_is_not_replaced(
    inbox: Inbox, tmp_path: Path, tally: ParseErrors
) -> None:
    path = tmp_path / "inbox"
    with pytest.raises(FileExistsError, match=f"{path} is a socket that another process listens to"):
        Inbox(path, job_map=PLACES, tally=tally)
    with closing(InboxSink(str(path), rank=1)) as sink:
        sink.put("hb", BEAT)
        sink.flush()
    assert wait_for(lambda: inbox.poll(0.0), what="heartbeat")


@pytest.mark.parametrize("kind", ["is a file", "is a folder", "is a symbolic link"])
def test_a_path_that_is_no_socket_is_not_replaced(tmp_path: Path, tally: ParseErrors, kind: str) -> None:
    path, kept = tmp_path / "inbox", tmp_path / "kept"
    kept.write_text("precious")
    if kind == "is a folder":
        path.mkdir()
    elif kind == "is a file":
        path.write_text("precious")
    else:
        path.symlink_to(kept)
    with pytest.raises(FileExistsError, match=f"{path} {kind}"):
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


def test_a_value_of_an_exporter_is_reported_once_per_change(tally: ParseErrors) -> None:
    codes = iter(["0", "0", "79"])

    def reply(path: str, _headers: dict[str, str], _body: bytes) -> Answer:
        assert path == "/metrics"
        return 200, XID.format(next(codes)).encode()

    with http_server(reply) as url:
        source = dcgm_source(f"{url}/metrics", node=1, job_map=PLACES, tally=tally)
        reported = [[observation.values for observation in source.poll(float(at))] for at in range(3)]
    assert [len(values) for values in reported] == [1, 0, 1]
    (xid,) = reported[2]
    assert isinstance(xid, DeviceCounter)
    assert (xid.name, xid.code) == ("xid", 79)


@pytest.mark.parametrize("status", [404, 500])
def test_an_error_status_of_an_exporter_is_a_failure(status: int, tally: ParseErrors) -> None:
    with http_server(lambda *_: (status, b"no")) as url, pytest.raises(OSError, match=f"returned {status}"):
        xpu_timer_source(url, job_map=PLACES, tally=tally).poll(0.0)


def test_a_server_that_is_no_exporter_is_a_failure() -> None:
    with (
        raw_server(lambda connection: connection.sendall(b"hello\r\n")) as (host, port),
        pytest.raises(OSError, match="BadStatusLine"),
    ):
        list(scrape(f"http://{host}:{port}/metrics"))


def test_a_truncated_scrape_fails_and_its_values_are_reported_by_the_next(tally: ParseErrors) -> None:
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
        (observation,) = source.poll(2.0)
    assert isinstance(observation.values, DeviceCounter)
    assert observation.values.code == 79


def ras_server(response: bytes, requested: list[bytes]) -> Callable[[socket.socket], None]:
    def serve(connection: socket.socket) -> None:
        question = b""
        while question.count(b"\n") < 2:
            question += connection.recv(1024)
        requested.append(question)
        connection.sendall(b"OK\n" + response)

    return serve


def test_ras_is_queried_for_json_and_other_output_is_counted(tally: ParseErrors) -> None:
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
    status = {"nccl_version": "2.30.7", "communicators": [{"hash": "0x2", "size": 2, "ranks": ranks}], "ras": {}}
    with raw_server(ras_server(json.dumps(status).encode(), [])) as address:
        observations = RasSource(job_map=PLACES, tally=tally, address=address).poll(1.0)
    counts = [(one.rank, one.values.ops) for one in observations if isinstance(one.values, OperationCounts)]
    assert counts == [(0, (("AllReduce", 40),)), (1, (("AllReduce", 41),))]


def test_an_unreachable_ras_server_is_a_failure(tally: ParseErrors) -> None:
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


def test_a_dump_is_read_once_after_it_stops_growing(tmp_path: Path, tally: ParseErrors) -> None:
    source = FlightSource(tmp_path, job_map=PLACES, tally=tally)
    path = tmp_path / "fr_rank1.json"
    text = json.dumps(DUMP)
    path.write_text(text[:50])
    assert source.poll(1.0) == []
    path.write_text(text)
    assert source.poll(2.0) == []  # the file grew
    observations = source.poll(3.0)
    assert [(one.rank, one.at_s) for one in observations] == [(1, 3.0)]
    assert source.poll(4.0) == []


def test_an_unreadable_dump_is_counted_and_retried_without_affecting_others(
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
    assert [observation.rank for observation in source.poll(2.0)] == [1]
    assert tally.counts() == {"fr: unreadable dump": 1}
    broken[0] = False
    assert [observation.rank for at_s in (3.0, 4.0) for observation in source.poll(at_s)] == [0]


def test_ports_are_read_from_sysfs(tmp_path: Path, tally: ParseErrors) -> None:
    port = tmp_path / "mlx5_0/ports/1"
    for name, text in {"state": "4: ACTIVE\n", "rate": "400 Gb/sec (4X NDR)\n", "counters/link_downed": "3\n"}.items():
        (port / name).parent.mkdir(parents=True, exist_ok=True)
        (port / name).write_text(text)
    (observation,) = PortSource(node=1, tally=tally, root=tmp_path).poll(2.0)
    assert isinstance(observation.values, Port)
    assert (observation.node, observation.values.device, observation.values.counters) == (
        1,
        "mlx5_0",
        (("link_downed", 3),),
    )


class Slow:
    """A source that blocks until released, and fails once."""

    name, period_s = "slow", 0.01

    def __init__(self) -> None:
        self.go, self.closed = threading.Event(), False
        self.polls = 0

    def poll(self, now_s: float) -> list[Observation]:
        self.go.wait()
        self.polls += 1
        if self.polls == 1:
            raise OSError("not yet")
        return [Observation(now_s, 0, OperationCounts("g", 1, (), "ok"), rank=0)]

    def close(self) -> None:
        self.closed = True


def test_a_slow_source_never_delays_a_poll_and_its_failure_is_reported_once() -> None:
    slow = Slow()
    threaded = ThreadedSource(slow, take_period_s=0.25)
    began_s = time.monotonic()
    assert threaded.poll(0.0) == []
    assert time.monotonic() - began_s < 1.0
    slow.go.set()
    wait_for(lambda: slow.polls > 1, what="second poll")
    with pytest.raises(OSError, match="not yet"):
        threaded.poll(0.0)
    assert wait_for(lambda: threaded.poll(0.0), what="observations")
    threaded.close()
    assert slow.closed
