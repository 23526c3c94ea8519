"""Batches: encoding and decoding agree, and invalid batches are refused."""

import json
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.telemetry.batch_codec import COLUMNS, Base, BaseMissingError, Batch, WireError, decode, encode
from deploy.telemetry.diag import Sample
from faults.observations import Collective, Heartbeat, Observation, Probe, ProbeReturned, Process
from fleetwright.telemetry.batch_format import VERSION

SENT_S = 1_795_000_000.5


@st.composite
def sample_lists(draw: st.DrawFn) -> list[Sample]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    found = []
    for _ in range(draw(st.integers(0, 3))):
        peers = np.sort(rng.choice(70, size=rng.integers(0, 6), replace=False)).astype(np.int64)
        rows = rng.integers(0, 2 ** int(rng.integers(1, 50)), size=(peers.size, COLUMNS), dtype=np.int64)
        found.append(Sample(SENT_S - int(rng.integers(0, 5000)) / 1e3, 3, peers, rows))
    return found


def sent(
    samples: list[Sample], others: list[Observation], *, held: Base | None, number: int
) -> tuple[Batch, Base, Base]:
    body, ours = encode(samples, others, session="s", number=number, held=held, node=3, sent_s=SENT_S)
    batch, theirs = decode(body, held_of=lambda _node, _session: held)
    return batch, ours, theirs


@given(st.lists(sample_lists(), min_size=1, max_size=3))
def test_both_ends_hold_the_same_base_after_any_batches(batches: list[list[Sample]]) -> None:
    held: Base | None = None
    for number, samples in enumerate(batches):
        batch, ours, theirs = sent(samples, [], held=held, number=number)
        assert [one.peers.tolist() for one in batch.samples] == [one.peers.tolist() for one in samples]
        assert [one.rows.tolist() for one in batch.samples] == [one.rows.tolist() for one in samples]
        assert [one.at_s for one in batch.samples] == pytest.approx([one.at_s for one in samples], abs=6e-4)
        assert ours.number == theirs.number == number
        assert ours.rows.tolist() == theirs.rows.tolist()
        held = ours


def test_other_observations_keep_their_times_to_the_microsecond() -> None:
    others = [
        Observation(SENT_S - 0.25, 3, Heartbeat(5, 4, "all_reduce", 2, "comm"), rank=3),
        Observation(SENT_S - 0.1, 3, Collective(5, "all_reduce", 8, SENT_S - 0.3, None, 2, "0-3"), rank=3),
        Observation(SENT_S, 3, Process(11, "T", 0.5, 3), rank=3),
    ]
    batch, _ours, _theirs = sent([], others, held=None, number=0)
    assert [one.values for one in batch.others if not isinstance(one.values, Collective)] == [
        others[0].values,
        others[2].values,
    ]
    collective = batch.others[1].values
    assert isinstance(collective, Collective)
    assert collective.arrived_s == pytest.approx(SENT_S - 0.3, abs=2e-6)
    assert [one.at_s for one in batch.others] == pytest.approx([one.at_s for one in others], abs=2e-6)


def test_observations_of_another_node_are_malformed() -> None:
    others = [Observation(SENT_S, node, Process(1, "R", 0.0)) for node in (3, 4)]
    batch, _ours, _theirs = sent([], others, held=None, number=0)
    assert [one.node for one in batch.others] == [3]
    assert batch.malformed == 1


def of_a_prober(others: list[Observation], **fields: Any) -> Batch:
    body, _held = encode([], others, session="s", number=0, held=None, node=3, sent_s=SENT_S, prober=True)
    altered = zlib.compress(json.dumps(json.loads(zlib.decompress(body)) | fields).encode())
    return decode(altered, held_of=lambda _node, _session: None)[0]


TRAIN = Probe(2048, SENT_S - 0.4, SENT_S - 0.399, 0.0005)


def test_a_batch_of_a_prober_contains_only_its_trains() -> None:
    trains = [
        Observation(SENT_S, 3, TRAIN, peer=4),
        Observation(SENT_S, 3, ProbeReturned(*TRAIN), peer=5),
    ]
    rest = [
        Observation(SENT_S, 3, Process(1, "R", 0.0), rank=3),
        Observation(SENT_S, 3, Heartbeat(5, 4, "all_reduce", 2, "comm"), rank=3),
        Observation(SENT_S, 4, TRAIN, peer=3),  # of another node
    ]
    batch = of_a_prober([*trains, *rest])
    assert batch.prober
    assert [(one.peer, type(one.values)) for one in batch.others] == [(4, Probe), (5, ProbeReturned)]
    assert batch.malformed == len(rest)


@pytest.mark.parametrize("value", [False, 0, 1, 1.0, "true", "prober", [], [True], {}])
def test_the_prober_field_must_be_true_if_present(value: Any) -> None:
    with pytest.raises(WireError, match="true of a prober"):
        of_a_prober([], prober=value)


def test_a_batch_of_a_prober_has_no_polls_and_no_rank() -> None:
    sample = Sample(SENT_S, 3, np.array([0], np.int64), np.zeros((1, COLUMNS), np.int64))
    body, _held = encode([sample], [], session="s", number=0, held=None, node=3, sent_s=SENT_S)
    looks = json.loads(zlib.decompress(body))["looks"]
    for fields in ({"looks": looks}, {"rank": 3}):
        with pytest.raises(WireError, match="no rank and no looks of a prober"):
            of_a_prober([], **fields)


def test_a_batch_of_a_recorder_has_no_prober_field() -> None:
    body, _held = encode([], [], session="s", number=0, held=None, node=3, sent_s=SENT_S)
    assert "prober" not in json.loads(zlib.decompress(body))
    assert not decode(body, held_of=lambda _node, _session: None)[0].prober


def test_a_batch_with_an_unknown_base_is_refused() -> None:
    held = Base(4, np.empty(0, np.int64), np.empty((0, COLUMNS), np.int64))
    body, _ = encode([], [], session="s", number=5, held=held, node=3, sent_s=SENT_S)
    with pytest.raises(BaseMissingError):
        decode(body, held_of=lambda _node, _session: None)
    with pytest.raises(BaseMissingError):
        decode(body, held_of=lambda _node, _session: held._replace(number=3))


@given(st.binary(max_size=300))
def test_any_bytes_are_refused(body: bytes) -> None:
    with pytest.raises(WireError):
        decode(body, held_of=lambda _node, _session: None)


WHOLE: dict[str, Any] = {
    "v": VERSION,
    "session": "s",
    "number": 1,
    "base": None,
    "node": 3,
    "sent_s": SENT_S,
    "looks": [],
    "others": [],
    "rank": None,
    "prober": None,
}
odd = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=6,
)


@given(st.sampled_from(sorted(WHOLE)), odd)
def test_any_value_in_any_field_is_read_or_refused(key: str, value: Any) -> None:
    body = zlib.compress(json.dumps(WHOLE | {key: value}).encode())
    try:
        decode(body, held_of=lambda _node, _session: None)
    except WireError:
        return


@given(st.lists(odd, max_size=3), st.lists(st.integers(-5, 5), max_size=3))
def test_any_polls_are_read_or_refused(poll: list[Any], offsets_ms: list[int]) -> None:
    for entry in (poll, [offsets_ms, *poll[:2]], [offsets_ms, "AQE=", *poll[:1]]):
        body = zlib.compress(json.dumps(WHOLE | {"looks": [entry]}).encode())
        try:
            decode(body, held_of=lambda _node, _session: None)
        except WireError:
            continue


def test_an_oversized_batch_is_refused_before_it_is_unpacked() -> None:
    packer = zlib.compressobj()
    body = b"".join(packer.compress(bytes(1 << 20)) for _ in range(64)) + packer.flush()
    with pytest.raises(WireError, match="larger"):
        decode(body, held_of=lambda _node, _session: None)
