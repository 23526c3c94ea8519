"""Recorders and probers of two nodes as real processes on loopback, with the real ingest behind HTTP: the readings of
the links when one of the processes is gone.
"""

import os
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from threading import Lock
from time import monotonic, time

import pytest

from deploy.fault_monitor.ingest import Ingest
from deploy.telemetry.batch_codec import BaseMissingError, WireError
from faults.detector import Job
from faults.observations import Observation, Probe, ProbeReturned, SocketPoll
from fleetwright.telemetry.batch_format import PATH
from tests.deploy.telemetry.servers import Answer, http_server
from tests.testbed.processes import Process
from tests.testbed.waiting import wait_for

BLOCK = f"127.{10 + os.getpid() % 200}.{os.getpid() // 200 % 250}"  # addresses that no other test run uses
PEERS = f"{BLOCK}.1=0,{BLOCK}.2=1"


class IngestEndpoint:
    """The ingest of a monitor behind HTTP, for inspection by the test."""

    def __init__(self) -> None:
        self.intake = Ingest(Job(nodes=2, rank_node=(0, 1)), zero_s=time())
        self.wrong: list[str] = []  # batches that were refused, or accepted in part
        self._observations: list[Observation] = []
        self._lock = Lock()

    def answer(self, path: str, _headers: dict[str, str], body: bytes) -> Answer:
        assert path == PATH
        with self._lock:
            try:
                taken = self.intake.take(body, received_s=time(), steady_s=monotonic())
            except WireError as error:
                self.wrong.append(f"{type(error).__name__}: {error}")
                return (409 if isinstance(error, BaseMissingError) else 422), b""
            self.wrong += ["malformed"] * taken.malformed
            self._observations += taken.observations
            return 204, b""

    def counts(self, kind: type) -> Counter[int]:
        """The number of observations of a kind per node."""
        with self._lock:
            return Counter(each.node for each in self._observations if isinstance(each.values, kind))

    def kinds(self) -> set[type]:
        """The types of all received observations."""
        with self._lock:
            return {type(each.values) for each in self._observations}


class Nodes:
    """Starts `fleetwright faults record` for the nodes."""

    def __init__(self, url: str, folder: Path, stack: ExitStack) -> None:
        self._url, self._folder, self._stack = url, folder, stack

    def recorder(self, node: int) -> Process:
        return self._started(node, "recorder", [])

    def prober(self, node: int) -> Process:
        return self._started(node, "prober", ["--probes-only", "--probe", "2048"])

    def _started(self, node: int, what: str, more: list[str]) -> Process:
        record = [sys.executable, "-m", "api.cli", "faults", "record", "--peers", PEERS, "--node", str(node)]
        argv = [*record, "--send", self._url, *more]
        return self._stack.enter_context(Process.start(argv, name=f"{what}-{node}", log_dir=self._folder))


def test_nodes_without_recorders_report_their_links_from_both_ends(tmp_path: Path) -> None:
    endpoint = IngestEndpoint()
    with http_server(endpoint.answer) as url, ExitStack() as stack:
        nodes = Nodes(url, tmp_path, stack)
        for node in range(2):
            nodes.prober(node)
        wait_for(lambda: endpoint.counts(Probe), _of_each(0, 1, least=3), what="trains at both nodes")
        wait_for(lambda: endpoint.counts(ProbeReturned), _of_each(0, 1, least=3), what="reports of both")
    assert endpoint.kinds() == {Probe, ProbeReturned}
    assert (dict(endpoint.intake.agents.recorders), sorted(endpoint.intake.agents.probers)) == ({}, [0, 1])
    assert endpoint.wrong == []


@pytest.mark.parametrize(("victim", "goes_on"), [("recorder", Probe), ("prober", SocketPoll)])
def test_when_one_of_two_agents_is_killed_the_other_continues_without_refusals(
    tmp_path: Path, victim: str, goes_on: type
) -> None:
    endpoint = IngestEndpoint()
    with http_server(endpoint.answer) as url, ExitStack() as stack:
        nodes = Nodes(url, tmp_path, stack)
        both = {"recorder": nodes.recorder(0), "prober": nodes.prober(0)}
        nodes.prober(1)
        wait_for(lambda: endpoint.counts(SocketPoll), _of_each(0, least=20), what="polls of node 0")
        wait_for(lambda: endpoint.counts(Probe), _of_each(0, 1, least=5), what="trains at both nodes")
        assert endpoint.wrong == []
        both[victim].popen.kill()
        both[victim].popen.wait()
        before = endpoint.counts(goes_on)[0]
        wait_for(lambda: endpoint.counts(goes_on), _of_each(0, least=before + 8), what="observations of node 0")
    assert endpoint.wrong == []


def _of_each(*nodes: int, least: int) -> Callable[[Counter[int]], bool]:
    return lambda counts: all(counts[node] >= least for node in nodes)
