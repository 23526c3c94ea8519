"""A recording folder becomes one stream, in the order in which observations became known, without future data."""

import json
import random
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faults.observation_jsonl import KIND_NAMES
from faults.observations import (
    Collective,
    DeviceCounter,
    FlightProgress,
    Heartbeat,
    PointToPoint,
    Process,
    Socket,
    SocketPoll,
)
from faults.readers import Recording, read
from fleet.documents import RuleError
from tests.faults.readers import made

RUNS = ("healthy_a", "hang_sigstop", "crash_sigkill", "hang_fr_multigroup")  # all of them: bench/faults_readers.py
RECORDINGS = [made.PUBLIC / name for name in RUNS if (made.PUBLIC / name / "run.json").is_file()]


def kinds(recording: Recording) -> Counter[str]:
    return Counter(KIND_NAMES[type(observation.values)] for observation in recording.observations)


def values(recording: Recording, kind: type[Any]) -> list[Any]:
    return [observation.values for observation in recording.observations if isinstance(observation.values, kind)]


def test_every_record_becomes_an_observation() -> None:
    recording = read(made.folder())

    assert kinds(recording) == {"Look": 60, "Socket": 120, "Heartbeat": 30, "Collective": 30, "Pass": 30}
    assert recording.malformed == {}
    assert recording.job.nodes == made.RANKS
    assert recording.job.rank_node == (0, 1, 2)
    assert recording.job.look_period_s == 0.25
    assert recording.t_go_s == made.T_GO_S


def test_times_are_seconds_after_t_go_and_never_decrease() -> None:
    times = [observation.at_s for observation in read(made.folder()).observations]

    assert times == sorted(times)
    assert times[0] == 0.0
    assert times[-1] == max(times) < made.STEPS * made.STEP_S + 1.0


def test_a_finished_operation_is_observed_at_its_end() -> None:
    recording = read(made.folder())

    for observation in recording.observations:
        if isinstance(observation.values, Collective):
            assert observation.values.finished_s == observation.at_s
            assert observation.values.arrived_s == observation.at_s - 0.25
        if isinstance(observation.values, PointToPoint):
            assert observation.at_s == max(observation.values.received_s, observation.values.sent_s)
            assert observation.peer == observation.values.source


def test_observations_do_not_depend_on_later_records() -> None:
    """The records up to a time give exactly the observations up to that time."""
    whole = read(made.folder())
    until_s = 2.3
    cut = {"run.json": made.run()}
    for index in range(made.RANKS):
        known = {
            f"coll_rank{index}.jsonl": [
                each
                for each in made.collectives(index)
                if max(each.get(key, 0.0) for key in ("t1", "tr", "ts")) <= made.T_GO_S + until_s
            ],
            f"hb_rank{index}.jsonl": [each for each in made.heartbeats(index) if each["t"] <= made.T_GO_S + until_s],
            f"tcp_node{index}.jsonl": [each for each in made.socket_polls(index) if each["t"] <= made.T_GO_S + until_s],
        }
        cut |= {name: made.lines(records) for name, records in known.items()}

    assert read(cut).observations == tuple(
        observation for observation in whole.observations if observation.at_s <= until_s
    )


def test_a_recorded_arrival_is_observed_at_once() -> None:
    arrival = {"seq": 11, "op": "all_reduce", "n": 8, "t0": made.T_GO_S + 4.9, "t1": None, "step": 10, "group": "tp"}
    recording = read({"run.json": made.run(), "coll_rank1.jsonl": made.lines([arrival])})

    (observation,) = recording.observations
    assert observation.at_s == pytest.approx(4.9, abs=1e-6)
    assert observation.values == Collective(11, "all_reduce", 8, observation.at_s, None, 10, "tp")


def test_a_socket_poll_precedes_its_sockets() -> None:
    observations = [each for each in read(made.folder()).observations if isinstance(each.values, SocketPoll | Socket)]

    for at, each in enumerate(observations):
        if isinstance(each.values, SocketPoll):
            at_once = [other for other in observations if other.at_s == each.at_s and other.node == each.node]
            assert at_once[0] is each
            assert len(at_once) == 1 + each.values.peers
        else:
            assert any(isinstance(other.values, SocketPoll) and other.node == each.node for other in observations[:at])


def test_a_socket_poll_without_peers_is_observed() -> None:
    bare = {"t": made.T_GO_S, "node": 2, "c": []}
    recording = read({"run.json": made.run(), "tcp_node2.jsonl": made.lines([bare])})

    assert [observation.values for observation in recording.observations] == [SocketPoll(peers=0)]


def test_a_socket_poll_of_a_node_outside_the_job_is_counted() -> None:
    strange = {"t": made.T_GO_S, "node": made.RANKS, "c": []}
    peer = {"t": made.T_GO_S, "node": 0, "c": [[made.RANKS, 3, *range(18)]]}
    name = f"tcp_node{made.RANKS}.jsonl"
    recording = read({"run.json": made.run(), name: made.lines([strange]), "tcp_node0.jsonl": made.lines([peer])})

    assert [(observation.node, observation.values) for observation in recording.observations] == [
        (0, SocketPoll(peers=1))
    ]
    assert recording.malformed == {
        "tcp: of a node outside the job": 1,
        "tcp: row of a node outside the job": 1,
    }


def test_a_peer_of_null_is_outside_the_job() -> None:
    outside = {"t": made.T_GO_S, "node": 0, "c": [[None, 3, *range(18)]]}
    recording = read({"run.json": made.run(), "tcp_node0.jsonl": made.lines([outside])})

    assert recording.observations[1].peer is None
    assert recording.observations[1].values == Socket(3, *range(18))


def test_other_recorded_kinds_are_read_on_the_same_clock() -> None:
    records = [
        {"t": made.T_GO_S + 1.0, "node": 1, "rank": 1, "kind": "Process", "v": [77, "T", 1.5, 12]},
        {"t": made.T_GO_S + 2.0, "node": 1, "kind": "Device", "v": ["0", "xid", 79, 1.0]},
        {
            "t": made.T_GO_S + 3.0,
            "node": 1,
            "rank": 1,
            "kind": "Flight",
            "v": ["0", [0, 1, 2], 5, -1, 4, "all_reduce", made.T_GO_S + 2.5],
        },
    ]
    recording = read({"run.json": made.run(), "seen_node1.jsonl": made.lines(records)})

    assert recording.malformed == {}
    assert [observation.values for observation in recording.observations] == [
        Process(77, "T", 1.5, 12),
        DeviceCounter("0", "xid", 79, 1.0),
        FlightProgress("0", (0, 1, 2), 5, -1, 4, "all_reduce", 2.5),
    ]
    assert [observation.at_s for observation in recording.observations] == [1.0, 2.0, 3.0]


def test_several_ranks_may_share_a_node() -> None:
    recording = read({**made.folder(), "run.json": made.run(rank_node=[0, 0, 1], groups={"dp": [0, 2], "tp": [0, 1]})})

    assert recording.job.nodes == 2
    assert recording.job.groups == ((0, 2), (0, 1))
    beats = [observation for observation in recording.observations if isinstance(observation.values, Heartbeat)]
    assert {(observation.rank, observation.node) for observation in beats} == {(0, 0), (1, 0), (2, 1)}


@pytest.mark.parametrize(
    ("name", "record", "defect"),
    [
        ("hb_rank0.jsonl", "{", "hb: not JSON"),
        ("hb_rank0.jsonl", "[" * 100_000, "hb: not JSON"),
        ("hb_rank0.jsonl", "[1]", "hb: not a JSON object"),
        ("hb_rank0.jsonl", '{"t": NaN}', "hb: not JSON"),
        ("hb_rank0.jsonl", {**made.heartbeats(0)[0], "rank": 1}, "hb: of another rank than its file"),
        ("hb_rank0.jsonl", {**made.heartbeats(0)[0], "enq": True}, "hb: enq is no whole number in range"),
        ("hb_rank0.jsonl", {**made.heartbeats(0)[0], "enq": 0, "done": 1}, "hb: done is more than enq"),
        ("hb_rank0.jsonl", {**made.heartbeats(0)[0], "t": "now"}, "hb: t is no number in range"),
        ("hb_rank0.jsonl", {**made.heartbeats(0)[0], "t": 1e300}, "hb: t is no number in range"),
        ("hb_rank0.jsonl", {**made.heartbeats(0)[0], "t": 5.0}, "hb: time is far from the job's"),
        ("hb_rank0.jsonl", {**made.heartbeats(0)[0], "phase": "x" * 1000}, "hb: phase is no short text"),
        ("hb_rank9.jsonl", {**made.heartbeats(0)[0], "rank": 9}, "hb: of a rank outside the job"),
        ("coll_rank0.jsonl", {**made.collectives(0)[0], "t1": 1.0}, "coll: time is far from the job's"),
        ("coll_rank0.jsonl", {**made.collectives(0)[0], "t1": made.T_GO_S - 1}, "coll: t1 is before t0"),
        ("coll_rank0.jsonl", {**made.collectives(0)[0], "n": -1}, "coll: n is no whole number in range"),
        ("coll_rank0.jsonl", {**made.collectives(0)[0], "n": 10**30}, "coll: n is no whole number in range"),
        ("coll_rank0.jsonl", {**made.collectives(0)[1], "ts": made.T_GO_S - 1}, "coll: tr or ts is before t0"),
        ("coll_rank0.jsonl", {**made.collectives(0)[1], "src": 7}, "coll: of a rank outside the job"),
        ("tcp_node0.jsonl", {**made.socket_polls(0)[0], "node": 1}, "tcp: of another node than its file"),
        ("tcp_node0.jsonl", {**made.socket_polls(0)[0], "c": {}}, "tcp: c is no list"),
        ("tcp_node0.jsonl", {**made.socket_polls(0)[0], "c": [[1, 2]]}, "tcp: row is too short"),
        ("tcp_node0.jsonl", {**made.socket_polls(0)[0], "c": [[7, *range(19)]]}, "tcp: row of a node outside the job"),
        (
            "tcp_node0.jsonl",
            {**made.socket_polls(0)[0], "c": [[1, -1, *range(18)]]},
            "tcp: row has a value that is no whole number in range",
        ),
        ("seen_node0.jsonl", {"t": made.T_GO_S, "node": 0, "kind": "Ghost", "v": []}, "seen: of an unknown kind"),
        (
            "seen_node0.jsonl",
            {"t": made.T_GO_S, "node": 0, "kind": "Process", "v": [1, 2]},
            "seen: v are not the kind's values",
        ),
        (
            "seen_node0.jsonl",
            {"t": made.T_GO_S, "node": 0, "kind": "Probe", "v": [64, made.T_GO_S - 1e9, made.T_GO_S]},
            "seen: time is far from the job's",
        ),
        (
            "seen_node0.jsonl",
            {"t": made.T_GO_S, "node": 0, "rank": 0, "kind": "Flight", "v": ["0", [0, 3], 1, 1, 1, None, None]},
            "seen: of a rank outside the job",
        ),
        (
            "seen_node0.jsonl",
            {"t": made.T_GO_S, "node": 0, "peer": 3, "kind": "Probe", "v": [64, made.T_GO_S, made.T_GO_S]},
            "seen: of a node outside the job",
        ),
    ],
)
def test_a_malformed_record_is_counted_and_the_rest_is_read(name: str, record: Any, defect: str) -> None:
    files = made.folder()
    line = record if isinstance(record, str) else json.dumps(record)
    files[name] = files.get(name, b"") + line.encode() + b"\n"

    found = read(files)

    assert found.malformed == {defect: 1}
    extra = {"Look": 1} if name == "tcp_node0.jsonl" and "row" in defect else {}
    assert kinds(found) == kinds(read(made.folder())) + Counter(extra)


def test_a_truncated_last_line_is_counted() -> None:
    files = made.folder()
    files["hb_rank1.jsonl"] = files["hb_rank1.jsonl"][:-20]

    assert read(files).malformed == {"hb: not JSON": 1}


def test_duplicate_records_give_one_observation() -> None:
    files = made.folder()
    files["coll_rank0.jsonl"] *= 2

    again = read(files)

    assert again.observations == read(made.folder()).observations
    assert again.malformed == {"any: written twice": 20}


@settings(max_examples=12)
@given(st.randoms(use_true_random=False))
def test_the_order_of_lines_does_not_matter(chance: random.Random) -> None:
    def shuffled(data: bytes) -> bytes:
        rows = data.splitlines(keepends=True)
        chance.shuffle(rows)
        return b"".join(rows)

    files = made.folder()
    names = list(files)
    chance.shuffle(names)
    mixed = {name: files[name] if name == "run.json" else shuffled(files[name]) for name in names}

    assert read(mixed) == read(files)


@settings(max_examples=12)
@given(st.integers(1, 5000))
def test_files_may_come_in_chunks_of_any_size(size: int) -> None:
    def chunks(data: bytes) -> Iterable[bytes]:
        return (data[at : at + size] for at in range(0, len(data), size))

    assert read({name: chunks(data) for name, data in made.folder().items()}) == read(made.folder())


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (None, "holds no run.json, expected the folder of a recording"),
        (b"", "is not JSON, expected the JSON object of a recording"),
        (b"[]", "is not a JSON object, expected the JSON object of a recording"),
        (b"{}", "n: expected a whole number from 1 to 131,072"),
        (made.run(n=0), "n: expected a whole number from 1 to 131,072"),
        (made.run(n=True), "n: expected a whole number from 1 to 131,072"),
        (made.run(t_go="now"), "t_go: expected a number from 0 to 1e+11"),
        (made.run(sample_hz=0), "sample_hz: expected a number from 0.01 to 1000"),
        (made.run(rank_node=[0]), "rank_node: expected the node of each of the 3 ranks, from 0 to 2"),
        (made.run(rank_node=[0, 1, 3]), "rank_node: expected the node of each of the 3 ranks, from 0 to 2"),
        (made.run(groups=[[0, 3]]), "groups: expected lists of ranks from 0 to 2"),
        (b" " * (8 << 20), "run.json is too large, expected at most 4,194,304 bytes"),
    ],
)
def test_a_folder_that_is_no_recording_is_refused(run: bytes | None, message: str) -> None:
    with pytest.raises(RuleError) as raised:
        read({} if run is None else {"run.json": run})

    assert str(raised.value) == message


def test_files_with_other_names_are_ignored() -> None:
    assert read({**made.folder(), "README.md": b"{", "tcp_node.jsonl": b"{", "sub/hb_rank0.jsonl": b"{"}) == read(
        made.folder()
    )


@pytest.mark.skipif(not RECORDINGS, reason="the public recordings are not present")
@pytest.mark.parametrize("folder", RECORDINGS, ids=lambda path: path.name)
def test_public_recordings_are_read_to_the_last_line(folder: Path) -> None:
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    recording = read(files)

    expected = sum(
        data.count(b"\n") for name, data in files.items() if name.startswith(("coll_rank", "hb_rank", "tcp_node"))
    )
    found = kinds(recording)
    assert recording.malformed == {}
    assert sum(found[kind] for kind in ("Collective", "Pass", "Heartbeat", "Look")) == expected
    assert len(values(recording, FlightProgress)) > 0 or folder.name == "crash_sigkill"
