"""Batches to a real server on loopback: what arrives, what is asked for again, and what trouble costs."""

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

BEGAN_S = time.time()  # a batch's times count from its sending


class FaultMonitor:
    """Holds the state of a monitor, and can forget it."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.asked_again = 0
        self.headers: dict[str, str] = {}
        self._held: Base | None = None

    def forget(self) -> None:
        self._held = None

    def reply(self, path: str, headers: dict[str, str], body: bytes) -> Answer:
        assert path == PATH
        self.headers = headers
        try:
            batch, self._held = decode(body, held_of=lambda _node, _session: self._held)
        except BaseMissingError:
            self.asked_again += 1
            return 409, b"whole one, please"
        except WireError as error:
            return 422, str(error).encode()
        self.batches.append(batch)
        return 204, b""


@contextmanager
def sending(watcher: FaultMonitor, token: str | None = None, **more: Any) -> Iterator[Sender]:
    with http_server(watcher.reply) as url:
        sender = Sender(url, node=3, token=token, **more)
        yield sender
        sender.close()


def poll(number: int, peers: tuple[int, ...] = (0, 1)) -> Sample:
    rows = np.full((len(peers), 19), number, np.int64)
    rows[:, 15] = 0
    return Sample(BEGAN_S + number / 4, 3, np.array(peers, np.int64), rows)


def process(state: str) -> list[Observation]:
    return [Observation(BEGAN_S, 3, Process(7, state, 0.0), rank=3)]


def test_everything_arrives_and_the_secret_is_shown() -> None:
    watcher = FaultMonitor()
    with sending(watcher, token="hush") as sender:
        for number in range(3):
            sender.sample(poll(number))
        sender.observed(process("R"))
    samples = [sample for batch in watcher.batches for sample in batch.samples]
    assert [sample.rows.tolist() for sample in samples] == [poll(number).rows.tolist() for number in range(3)]
    assert [other.values for batch in watcher.batches for other in batch.others] == [Process(7, "R", 0.0)]
    assert watcher.headers["Authorization"] == "Bearer hush"


def test_a_watcher_that_was_started_again_gets_a_whole_batch() -> None:
    watcher = FaultMonitor()
    with sending(watcher) as sender:
        sender.sample(poll(0))
        sender.sample(poll(1, peers=(0,)))  # a peer vanished: sent at once
        sender.flush()
        wait_for(lambda: watcher.batches, what="first batch")
        watcher.forget()
        sender.sample(poll(2, peers=(0,)))
    assert watcher.asked_again == 1
    assert watcher.batches[-1].samples[-1].rows.tolist() == poll(2, peers=(0,)).rows.tolist()


def test_a_stopped_process_is_told_before_the_wait_is_over() -> None:
    watcher = FaultMonitor()
    with sending(watcher, steady_s=lambda: 0.0, now_s=lambda: BEGAN_S) as sender:  # its wait is never over
        sender.observed(process("R"))
        sender.flush()
        assert not sender.is_due()
        sender.observed(process("T"))
        sender.flush()
        wait_for(lambda: watcher.batches, what="news")


def test_a_prober_says_every_two_seconds_that_it_lives_where_it_has_nothing_to_tell() -> None:
    watcher, at_s = FaultMonitor(), 0.0
    with sending(watcher, prober=True, steady_s=lambda: at_s, now_s=lambda: BEGAN_S + at_s) as sender:
        for number in range(1, 4):
            at_s = 2.0 * number - 0.2
            assert not sender.is_due()
            sender.flush()
            at_s = 2.0 * number
            wait_for(sender.is_due, what="the next")
            sender.flush()
            wait_for(lambda: len(watcher.batches), number.__eq__, what="a batch each")
    assert {(batch.prober, batch.samples, batch.others) for batch in watcher.batches} == {(True, (), ())}
    assert sender.sent.wire_bytes / sender.sent.batches < 500  # of the 2,000 that two seconds may cost


def test_a_recorder_that_has_nothing_to_tell_sends_nothing() -> None:
    watcher = FaultMonitor()
    with sending(watcher, steady_s=iter(range(100_000)).__next__) as sender:
        for _ in range(10):
            sender.flush()
    assert watcher.batches == []


def test_an_alarm_rings_once_until_it_is_over() -> None:
    alarms = Alarms()
    beats = [[Observation(1.0, 3, Heartbeat(2, 1, "all_reduce", 0, phase), rank=3)] for phase in ("comm", "failed")]
    received = [*beats, beats[1], beats[0], beats[1]]
    assert [alarms.ring(beat) for beat in received] == [False, True, False, False, True]


def test_what_the_peers_tell_as_well_is_left_out_first() -> None:
    seen = [
        Observation(1.0, 3, ProbeReturned(64, 0.5, 0.6), peer=1),
        Observation(1.1, 3, Collective(5, "all_reduce", 8, 0.9, 1.1), rank=3),
        Observation(1.2, 3, Heartbeat(5, 5, None, 2, "compute"), rank=3),
        Observation(1.3, 3, Probe(64, 0.5, 0.6), peer=1),
        Observation(1.4, 3, ProbeReturned(64, 1.0, 1.1), peer=2),
    ]
    assert affordable(seen, 5) == seen
    assert affordable(seen, 4) == seen[1:]
    assert affordable(seen, 3) == seen[1:4]
    assert affordable(seen, 1) == [seen[3]]


def test_a_watcher_that_is_away_costs_the_batch_and_nothing_else() -> None:
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
def test_what_is_told_once_waits_for_a_watcher_that_is_away_not_for_one_that_refuses(
    status: int, sent: list[type]
) -> None:
    watcher, refused = FaultMonitor(), list[bytes]()

    def reply(path: str, headers: dict[str, str], body: bytes) -> Answer:
        if not refused:
            refused.append(body)
            return status, b""
        return watcher.reply(path, headers, body)

    with http_server(reply) as url:
        sender = Sender(url, node=3)
        sender.observed([*error_of_a_gpu(), *process("R"), *trains()])
        sender.observed(process("T"))
        sender.flush()
        wait_for(lambda: sender.sent.failed, what="refusal")
        sender.sample(poll(0))
        sender.close()
    (batch,) = watcher.batches
    assert [type(seen.values) for seen in batch.others] == sent


@pytest.mark.parametrize("step_s", [-300.0, 300.0])
def test_a_clock_that_was_set_begins_a_new_session_without_the_looks_of_both(step_s: float) -> None:
    watcher, ahead_s = FaultMonitor(), [0.0]
    with http_server(watcher.reply) as url:
        sender = Sender(url, node=3, now_s=lambda: time.time() + ahead_s[0])
        for number, peers in ((0, (0, 1)), (1, (0,)), (2, (0, 1)), (3, ())):
            if number == 2:
                ahead_s[0] = step_s
            sender.sample(poll(number, peers))
            sender.observed(process("R" if number % 2 else "T"))
            sender.flush()
            wait_for(lambda most=number: len(watcher.batches) > most, what="batch")  # type: ignore[misc]
        sender.close()
    sessions = [batch.session for batch in watcher.batches]
    assert sessions[0] == sessions[1] != sessions[2] == sessions[3]
    assert [len(batch.samples) for batch in watcher.batches] == [1, 1, 0, 1]
    assert watcher.asked_again == 0
