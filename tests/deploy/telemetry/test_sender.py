"""Batches to a real server on loopback: delivery, repeated bases, and failures."""

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from deploy.telemetry.batch_codec import Base, BaseMissingError, Batch, WireError, decode
from deploy.telemetry.diag import Sample
from deploy.telemetry.sender import Alarms, Sender, affordable
from faults.observations import Collective, DeviceCounter, Heartbeat, Observation, Probe, ProbeReturned, Process
from fleetwright.telemetry.batch_format import PATH
from tests.deploy.telemetry.servers import Answer, http_server
from tests.testbed.waiting import wait_for

BEGAN_S = time.time()  # times in a batch are relative to its sending


class FaultMonitor:
    """A fault monitor double whose state the test can drop."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.missing_bases = 0
        self.headers: dict[str, str] = {}
        self._held: Base | None = None

    def drop_state(self) -> None:
        self._held = None

    def reply(self, path: str, headers: dict[str, str], body: bytes) -> Answer:
        assert path == PATH
        self.headers = headers
        try:
            batch, self._held = decode(body, held_of=lambda _node, _session: self._held)
        except BaseMissingError:
            self.missing_bases += 1
            return 409, b"base missing"
        except WireError as error:
            return 422, str(error).encode()
        self.batches.append(batch)
        return 204, b""


@contextmanager
def sending(monitor: FaultMonitor, token: str | None = None, **more: Any) -> Iterator[Sender]:
    with http_server(monitor.reply) as url:
        sender = Sender(url, node=3, token=token, **more)
        yield sender
        sender.close()


def poll(number: int, peers: tuple[int, ...] = (0, 1)) -> Sample:
    rows = np.full((len(peers), 19), number, np.int64)
    rows[:, 15] = 0
    return Sample(BEGAN_S + number / 4, 3, np.array(peers, np.int64), rows)


def process(state: str) -> list[Observation]:
    return [Observation(BEGAN_S, 3, Process(7, state, 0.0), rank=3)]


def test_all_observations_are_delivered_with_the_token() -> None:
    monitor = FaultMonitor()
    with sending(monitor, token="secret") as sender:
        for number in range(3):
            sender.sample(poll(number))
        sender.observed(process("R"))
    samples = [sample for batch in monitor.batches for sample in batch.samples]
    assert [sample.rows.tolist() for sample in samples] == [poll(number).rows.tolist() for number in range(3)]
    assert [other.values for batch in monitor.batches for other in batch.others] == [Process(7, "R", 0.0)]
    assert monitor.headers["Authorization"] == "Bearer secret"


def test_a_restarted_monitor_gets_a_complete_batch() -> None:
    monitor = FaultMonitor()
    with sending(monitor) as sender:
        sender.sample(poll(0))
        sender.sample(poll(1, peers=(0,)))  # a peer disappeared: the sample is sent immediately
        sender.flush()
        wait_for(lambda: monitor.batches, what="first batch")
        monitor.drop_state()
        sender.sample(poll(2, peers=(0,)))
    assert monitor.missing_bases == 1
    assert monitor.batches[-1].samples[-1].rows.tolist() == poll(2, peers=(0,)).rows.tolist()


def test_a_stopped_process_is_reported_before_the_send_interval_ends() -> None:
    monitor = FaultMonitor()
    with sending(
        monitor, steady_s=lambda: 0.0, now_s=lambda: BEGAN_S
    ) as sender:  # the clock stands, so the send interval never ends
        sender.observed(process("R"))
        sender.flush()
        assert not sender.is_due()
        sender.observed(process("T"))
        sender.flush()
        wait_for(lambda: monitor.batches, what="immediate batch")


def test_an_idle_prober_sends_an_empty_batch_every_two_seconds() -> None:
    monitor, at_s = FaultMonitor(), 0.0
    with sending(monitor, prober=True, steady_s=lambda: at_s, now_s=lambda: BEGAN_S + at_s) as sender:
        for number in range(1, 4):
            at_s = 2.0 * number - 0.2
            assert not sender.is_due()
            sender.flush()
            at_s = 2.0 * number
            wait_for(sender.is_due, what="the next")
            sender.flush()
            wait_for(lambda: len(monitor.batches), number.__eq__, what="a batch each")
    assert {(batch.prober, batch.samples, batch.others) for batch in monitor.batches} == {(True, (), ())}
    assert sender.sent.wire_bytes / sender.sent.batches < 500  # the limit is 2,000 bytes for two seconds


def test_an_idle_recorder_sends_nothing() -> None:
    monitor = FaultMonitor()
    with sending(monitor, steady_s=iter(range(100_000)).__next__) as sender:
        for _ in range(10):
            sender.flush()
    assert monitor.batches == []


def test_an_alarm_is_raised_once_until_its_cause_ends() -> None:
    alarms = Alarms()
    beats = [[Observation(1.0, 3, Heartbeat(2, 1, "all_reduce", 0, phase), rank=3)] for phase in ("comm", "failed")]
    received = [*beats, beats[1], beats[0], beats[1]]
    assert [alarms.update(beat) for beat in received] == [False, True, False, False, True]


def test_observations_that_peers_also_report_are_dropped_first() -> None:
    observations = [
        Observation(1.0, 3, ProbeReturned(64, 0.5, 0.6), peer=1),
        Observation(1.1, 3, Collective(5, "all_reduce", 8, 0.9, 1.1), rank=3),
        Observation(1.2, 3, Heartbeat(5, 5, None, 2, "compute"), rank=3),
        Observation(1.3, 3, Probe(64, 0.5, 0.6), peer=1),
        Observation(1.4, 3, ProbeReturned(64, 1.0, 1.1), peer=2),
    ]
    assert affordable(observations, 5) == observations
    assert affordable(observations, 4) == observations[1:]
    assert affordable(observations, 3) == observations[1:4]
    assert affordable(observations, 1) == [observations[3]]


def test_an_unreachable_monitor_loses_only_the_batch() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    sender = Sender(f"http://127.0.0.1:{port}", node=3)
    sender.sample(poll(0))
    sender.close()
    assert (sender.sent.batches, sender.sent.failed) == (0, 1)


def error_of_a_gpu() -> list[Observation]:
    return [Observation(time.time(), 3, DeviceCounter("0", "xid", 79, 1.0))]


def trains() -> list[Observation]:
    both = Probe(64, BEGAN_S, BEGAN_S + 0.1), ProbeReturned(64, BEGAN_S, BEGAN_S + 0.1)
    return [Observation(time.time(), 3, values, peer=1) for values in both]


@pytest.mark.parametrize(("status", "sent"), [(503, [DeviceCounter]), (422, [])])
def test_one_time_observations_are_kept_after_an_outage_and_dropped_after_a_refusal(
    status: int, sent: list[type]
) -> None:
    monitor, refused = FaultMonitor(), list[bytes]()

    def reply(path: str, headers: dict[str, str], body: bytes) -> Answer:
        if not refused:
            refused.append(body)
            return status, b""
        return monitor.reply(path, headers, body)

    with http_server(reply) as url:
        sender = Sender(url, node=3)
        sender.observed([*error_of_a_gpu(), *process("R"), *trains()])
        sender.observed(process("T"))
        sender.flush()
        wait_for(lambda: sender.sent.failed, what="refusal")
        sender.sample(poll(0))
        sender.close()
    (batch,) = monitor.batches
    assert [type(observation.values) for observation in batch.others] == sent


@pytest.mark.parametrize("step_s", [-300.0, 300.0])
def test_a_changed_clock_starts_a_new_session_without_mixed_samples(step_s: float) -> None:
    monitor, ahead_s = FaultMonitor(), [0.0]
    with http_server(monitor.reply) as url:
        sender = Sender(url, node=3, now_s=lambda: time.time() + ahead_s[0])
        for number, peers in ((0, (0, 1)), (1, (0,)), (2, (0, 1)), (3, ())):
            if number == 2:
                ahead_s[0] = step_s
            sender.sample(poll(number, peers))
            sender.observed(process("R" if number % 2 else "T"))
            sender.flush()
            wait_for(lambda most=number: len(monitor.batches) > most, what="batch")  # type: ignore[misc]
        sender.close()
    sessions = [batch.session for batch in monitor.batches]
    assert sessions[0] == sessions[1] != sessions[2] == sessions[3]
    assert [len(batch.samples) for batch in monitor.batches] == [1, 1, 0, 1]
    assert monitor.missing_bases == 0
