"""Cost of one node's recorder: one poll of the sockets, the whole process at 4 Hz, and its bytes to a monitor.

Connections are real, on loopback, with traffic four times a second on each.  Both ends are in this one namespace, so
the kernel walks twice the sockets of a node.  `core_share` is CPU time of the recorder's process (all threads, user and
system) over wall time, after its start; the monitor is another process.

The rows with trains measure two processes together, a recorder and the node's prober, then a recorder that probes
itself.  A process that is not counted replies to the probes and sends as many.
"""

import multiprocessing
import multiprocessing.connection
import os
import resource
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from bench.harness import Row, child
from deploy.telemetry.factory import Recording, recorder_of, settle_memory
from deploy.telemetry.peers import Peers
from deploy.telemetry.prober import Prober
from deploy.telemetry.sender import Sender
from deploy.telemetry.sockets import SocketSource

POLLS: Final = 200
PERIOD_S: Final = 0.25
HELD: Final = 4
RUN_S: Final = 20.0
LONG_RUN_S: Final = 60.0  # of the case that the claim is about
MESSAGE: Final = bytes(16_384)
ADDRESSES: Final = ("127.1.{}.{}", 200)
CASES: Final = ((8, 1), (8, 8), (8, 32), (64, 4))  # peers, connections to each
CLAIMED: Final = (8, 8)
TRAINS_BYTES: Final = (2048, 16_384, 65_536)
PROBED_EVERY_S: Final = 1.0  # by each of 8 peers: 8 trains a second out, and as many in


class Cost(NamedTuple):
    core_share: float
    late_polls: int
    wire_bytes_per_s: float
    rss_mib: float


def run() -> list[Row]:
    return [*(_row(peers, each) for peers, each in CASES), *map(_row_of_two, TRAINS_BYTES)]


def _row(count: int, each: int) -> Row:
    addresses = _addresses(count)
    peers = _peers(addresses)
    with _traffic(addresses, each), _monitor() as url, tempfile.TemporaryDirectory() as folder:
        poll_ms = _polls(peers)
        run_s = LONG_RUN_S if (count, each) == CLAIMED else RUN_S
        both = _recording(peers, monitor_url=url, folder=Path(folder))
        (cost,) = _in_children([(both, run_s)])
        (alone,) = _in_children([(_recording(peers, monitor_url=None, folder=Path(folder) / "alone"), RUN_S)])
    return {
        "peers": count,
        "connections": count * each,
        "polls_only_percent": 100 * 4 * float(np.mean(poll_ms)) / 1e3,
        "to_folder_percent": 100 * alone.core_share,
        "to_folder_and_monitor_percent": 100 * cost.core_share,
        "late_polls": cost.late_polls,
        "wire_bytes_per_s": cost.wire_bytes_per_s,
        "rss_mib": cost.rss_mib,
        "load_average": os.getloadavg()[0],
    }


def _row_of_two(size_bytes: int) -> Row:
    count, each = CLAIMED
    addresses = _addresses(count + 1)  # the last is the node's own
    peers = _peers(addresses)
    with _traffic(addresses[:-1], each), child(_probe, peers, size_bytes), _monitor() as url:
        recorder = replace(_recording(peers, monitor_url=url, folder=None), node=count)
        prober = replace(recorder, probe_bytes=size_bytes, probes_only=True)
        ours, its = _in_children([(recorder, LONG_RUN_S), (prober, LONG_RUN_S)])
        (one,) = _in_children([(replace(recorder, probe_bytes=size_bytes), LONG_RUN_S)])
    return {
        "peers": count,
        "connections": count * each,
        "train_bytes": size_bytes,
        "recorder_percent": 100 * ours.core_share,
        "prober_percent": 100 * its.core_share,
        "together_percent": 100 * (ours.core_share + its.core_share),
        "one_process_percent": 100 * one.core_share,
        "late_polls": ours.late_polls + its.late_polls,
        "wire_bytes_per_s": ours.wire_bytes_per_s + its.wire_bytes_per_s,
        "rss_mib": ours.rss_mib,
        "load_average": os.getloadavg()[0],
    }


def _addresses(count: int) -> list[str]:
    return [ADDRESSES[0].format(at // ADDRESSES[1], 1 + at % ADDRESSES[1]) for at in range(count)]


def _peers(addresses: list[str]) -> Peers:
    return Peers({address: at for at, address in enumerate(addresses)})


def _recording(peers: Peers, *, monitor_url: str | None, folder: Path | None) -> Recording:
    pid_of = {0: os.getpid()}  # a process that is there
    held_s = HELD * PERIOD_S
    return Recording(node=0, peers=peers, pid_of=pid_of, folder=folder, monitor_url=monitor_url, held_s=held_s)


def _polls(peers: Peers) -> list[float]:
    """CPU of single polls, kernel included.  The cold caches of a recorder's pace are part of it."""
    source = SocketSource(node=0, peers=peers, max_held=HELD)
    spent: list[float] = []
    complete = 0
    try:
        for poll in range(POLLS):
            began_s = time.thread_time()
            samples = source.poll(PERIOD_S * poll, wanted=False)
            spent.append((time.thread_time() - began_s) * 1e3)
            complete += sum(len(sample.peers) == peers.nodes for sample in samples)
            time.sleep(0.05)
    finally:
        source.close()
    assert complete > POLLS - HELD
    return spent


def _whole(recording: Recording, run_s: float) -> Cost:
    recorder = recorder_of(recording, started_s=time.time())
    for _ in range(4):  # what is loaded and made at the first polls is not the pace's cost
        recorder.poll()
    settle_memory()
    before_s, began_s = _cpu_s(), time.monotonic()
    tally = recorder.run(threading.Event(), duration_s=run_s)
    lasted_s = time.monotonic() - began_s
    sent = next((sink.sent for sink in recorder.sinks if isinstance(sink, Sender)), None)
    return Cost(
        core_share=(_cpu_s() - before_s) / lasted_s,
        late_polls=tally.late_polls,
        wire_bytes_per_s=sent.wire_bytes / lasted_s if sent else 0.0,
        rss_mib=_rss_mib(),
    )


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _rss_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def _in_children(runs: list[tuple[Recording, float]]) -> list[Cost]:
    """Each in a fresh process, all at once: nothing else runs in it."""
    context = multiprocessing.get_context("spawn")
    with ExitStack() as stack:
        pools = [stack.enter_context(context.Pool(1)) for _ in runs]
        going = [pool.apply_async(_whole, run) for pool, run in zip(pools, runs, strict=True)]
        return [each.get() for each in going]


@contextmanager
def _traffic(addresses: list[str], each: int) -> Iterator[None]:
    ours, theirs = multiprocessing.Pipe()
    with child(_talk, addresses, each, theirs):
        assert ours.poll(60)
        yield


def _probe(peers: Peers, size_bytes: int) -> None:
    """The probers of all nodes but the last."""
    last = peers.nodes - 1
    made = [
        Prober(node=node, peers=peers, size_bytes=size_bytes, every_s=PROBED_EVERY_S, connected_peers=lambda: (last,))
        for node in range(last)
    ]
    while True:
        for prober in made:
            prober.poll(time.time())
        time.sleep(PERIOD_S)


def _talk(addresses: list[str], each: int, ready: multiprocessing.connection.Connection) -> None:
    pairs: list[tuple[socket.socket, socket.socket]] = []
    for address in addresses:
        with socket.create_server((address, 0)) as server:
            for _ in range(each):
                client = socket.create_connection(server.getsockname()[:2])
                pairs.append((client, server.accept()[0]))
    ready.send("connected")
    while True:
        for client, server in pairs:
            client.sendall(MESSAGE)
            left = len(MESSAGE)
            while left:
                left -= len(server.recv(left))
        time.sleep(0.25)


@contextmanager
def _monitor() -> Iterator[str]:
    ours, theirs = multiprocessing.Pipe()
    with child(_reply, theirs):
        assert ours.poll(60)
        yield f"http://127.0.0.1:{ours.recv()}"


class _Accept(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_args: Any) -> None:
        """Nothing."""


def _reply(ready: multiprocessing.connection.Connection) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Accept)
    ready.send(server.server_port)
    server.serve_forever()
