"""Every reader gives observations or counts for damaged input, and nothing else.

The damaged input is a good file: truncated, or with changed bytes, with shuffled, doubled or removed lines, or with
swapped values.
"""

import json
import math
import random
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faults.observation_jsonl import from_line, to_line
from faults.observations import Observation
from faults.readers import ParseErrors, read
from faults.readers.dcgm import parse_dcgm
from faults.readers.ib_ports import parse_ports
from faults.readers.job_map import JobMap
from faults.readers.nccl_ras import Communicators, parse_ras
from faults.readers.xpu_timer import parse_xpu_timer
from tests.faults.readers import made
from tests.faults.readers.test_ib_ports import FILES, ROOT
from tests.faults.readers.test_nccl_inspector import COLLECTIVE, PROXY, SEND, marker, stamps
from tests.faults.readers.test_nccl_ras import communicator, lost, rank, ras_response

PLACES = JobMap(3, (0, 1, 2), hosts={"10.0.0.1": 0, "10.0.0.2": 1, "b": 2})
VALUES: list[Any] = [
    None,
    True,
    -1,
    0,
    1.5,
    2**63,
    10**400,
    1e308,
    "",
    "x" * 5000,
    [],
    {},
    [[]],
    {"t": []},
    "\ud800",
    "0",
]


class Source(NamedTuple):
    """A good file and its reader."""

    good: bytes
    read: Callable[[bytes, ParseErrors], Iterable[Observation]]


def recorded(name: str) -> Callable[[bytes, ParseErrors], Iterable[Observation]]:
    def of(data: bytes, tally: ParseErrors) -> Iterable[Observation]:
        recording = read({"run.json": made.run(), name: data})
        for kind, times in recording.malformed.items():
            tally.add("all", kind, times=times)
        return recording.observations

    return of


def proxy() -> dict[str, Any]:
    return {"proxy_trace": {**PROXY, "event_trace_ts": stamps(proxy_op_start_ts=2.0, proxy_op_stop_ts=2.5)}}


RECORDED = {
    "t": made.T_GO_S + 3.0,
    "node": 1,
    "rank": 1,
    "kind": "Flight",
    "v": ["0", [0, 1], 5, -1, 4, "all_reduce", made.T_GO_S],
}
DUMP = made.dump(made.entry(), made.waiting(collective_seq_id=2), made.gloo(seq=3, retired=False, pg_id=1))
RAS = ras_response(
    communicator(
        *(rank(index, index) for index in range(3)), size=3, missing=(lost(3, 3, dead=True, unresponsive=True),)
    )
)
DCGM = b'DCGM_FI_DEV_XID_ERRORS{gpu="3",Hostname="b"} 79\nDCGM_FI_DEV_ECC_DBE_VOL_TOTAL{gpu="0"} 3\n'
XPU = b'XPU_TIMER_COMMON_HANG{ip="1.2.3.4",rank="1"} 1\nXPU_TIMER_MM_KERNEL_FLOPS{operation="Matmul",rank="0"} 345.5\n'


def parse_texts(data: bytes, tally: ParseErrors) -> Iterable[Observation]:
    text = data.decode(errors="replace")
    texts = {
        **FILES,
        f"{ROOT}/state": text,
        f"{ROOT}/rate": text.replace("4: ACTIVE", "4 Gb/sec"),
        f"{ROOT}/counters/link_downed": text,
    }
    return parse_ports(texts, at_s=0.0, node=0, tally=tally)


SOURCES = {
    "collectives": Source(made.lines(made.collectives(1)), recorded("coll_rank1.jsonl")),
    "heartbeats": Source(made.lines(made.heartbeats(1)), recorded("hb_rank1.jsonl")),
    "polls": Source(made.lines(made.socket_polls(1)), recorded("tcp_node1.jsonl")),
    "seen": Source(made.lines([RECORDED] * 3), recorded("seen_node1.jsonl")),
    "dump": Source(json.dumps(DUMP).encode(), recorded("fr_rank1.json")),
    "inspector": Source(
        made.lines([marker(coll=1, p2p=1, proxy=1), {"coll_perf": COLLECTIVE}, {"p2p_perf": SEND}, proxy()]),
        recorded("inspector_rank1.jsonl"),
    ),
    "ras": Source(
        RAS, lambda data, tally: parse_ras(data, at_s=0.0, job_map=PLACES, members=Communicators(PLACES), tally=tally)
    ),
    "dcgm": Source(DCGM, lambda data, tally: parse_dcgm([data], at_s=0.0, node=0, job_map=PLACES, tally=tally)),
    "xpu_timer": Source(XPU, lambda data, tally: parse_xpu_timer([data], at_s=0.0, job_map=PLACES, tally=tally)),
    "ports": Source(b"4: ACTIVE\n", parse_texts),
}


def damage(data: bytes, chance: random.Random) -> bytes:
    """The file, damaged in one of six ways."""
    rows = data.splitlines(keepends=True)
    way = chance.randrange(6)
    if way == 0:
        return data[: chance.randrange(len(data) + 1)]
    if way == 1:
        chance.shuffle(rows)
        return b"".join(rows)
    if way == 2:
        return b"".join(row for row in rows for _ in range(chance.randrange(3)))
    if way == 3:
        return b"".join(_swapped(row, chance) for row in rows)
    found = bytearray(data)
    for _ in range(chance.randrange(1, 20)):
        at = chance.randrange(len(found))
        if way == 4:
            found[at] = chance.randrange(256)
        else:
            found[at:at] = chance.choice([b'"', b"{", b"[", b"NaN", b"-", b"1e999", b"9" * 30, b"\x00", b"\xff", b"\n"])
    return bytes(found)


def _swapped(row: bytes, chance: random.Random) -> bytes:
    """The same JSON with one value replaced, at any depth."""
    try:
        found = json.loads(row)
    except ValueError:
        return row
    inner = found
    while isinstance(inner, dict | list) and inner:
        key = chance.choice(list(inner) if isinstance(inner, dict) else range(len(inner)))
        if chance.random() < 0.4 or not isinstance(inner[key], dict | list) or not inner[key]:
            inner[key] = chance.choice(VALUES)
            break
        inner = inner[key]
    return json.dumps(found).encode() + b"\n"


def test_good_files_have_no_parse_errors() -> None:
    for name in SOURCES.keys() - {"ports", "seen"}:
        tally = ParseErrors()
        assert len(list(SOURCES[name].read(SOURCES[name].good, tally))) > 0
        assert tally.counts() == {}


@pytest.mark.parametrize("name", SOURCES)
@given(st.randoms(use_true_random=False))
def test_damaged_files_give_observations_or_counts(name: str, chance: random.Random) -> None:
    source = SOURCES[name]
    tally = ParseErrors()

    found = list(source.read(damage(source.good, chance), tally))

    for observation in found:
        assert math.isfinite(observation.at_s)
        assert 0 <= observation.node < 3
        assert observation.rank is None or 0 <= observation.rank < 3
        assert observation.peer is None or 0 <= observation.peer < 3
        assert from_line(to_line(observation)) == observation  # every observation can be serialized
    assert all(len(kind) < 200 for kind in tally.counts())


@given(st.binary(max_size=300))
def test_arbitrary_bytes_give_only_observations(data: bytes) -> None:
    for source in SOURCES.values():
        assert all(isinstance(observation, Observation) for observation in source.read(data, ParseErrors()))


@settings(max_examples=12)
@given(st.randoms(use_true_random=False))
def test_a_damaged_folder_is_read_or_counted(chance: random.Random) -> None:
    files = made.folder()
    damaged = {name: data if name == "run.json" else damage(data, chance) for name, data in files.items()}

    recording = read(damaged)

    times = [observation.at_s for observation in recording.observations]
    assert times == sorted(times)
    assert len(set(recording.observations)) == len(recording.observations)
