"""Batches of a recorder for the fault monitor: small enough for 1 kB/s of a node, and safe to read from any sender.

A batch is zlib of one JSON object.  A poll is a matrix, peers x columns of `Socket`, written as differences from the
previous poll: zigzag, 7 bits a byte (LEB128), base64, all polls of the same peers together, column by column.  Most
columns of an idle connection do not change and cost a byte, which zlib removes.  A batch with `base` None is whole; any
other builds on the batch numbered `base`, and a monitor without that batch gets a whole one.  Times count from
`sent_s`.
"""

import base64
import binascii
import json
import zlib
from collections.abc import Callable
from itertools import groupby
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deploy.telemetry.diag import Sample
from faults.observation_jsonl import KIND_NAMES, from_list
from faults.observations import Observation, Probe, ProbeReturned, Socket, on_clock_of
from fleetwright.telemetry.batch_format import MAX_RANKS, VERSION, pack

Ints = NDArray[np.int64]

_LARGER_FROM: Final = np.uint64(1) << (np.uint64(7) * np.arange(1, 10, dtype=np.uint64))  # takes one byte more

COLUMNS: Final = len(Socket._fields)
MAX_BODY_BYTES: Final = 256 * 1024
MAX_BYTES: Final = 8 * 1024 * 1024  # of a batch, decompressed
MAX_PEERS: Final = 100_000
MAX_POLLS: Final = 1000
MAX_OTHERS: Final = 50_000


class WireError(ValueError):
    """The batch cannot be read."""


class BaseMissingError(WireError):
    """The batch builds on one that is not held."""


class Base(NamedTuple):
    """The state of both ends after a batch: its number and its last poll."""

    number: int
    peers: Ints
    rows: Ints


HeldOf = Callable[[int, str], Base | None]

NOTHING: Final = Base(-1, np.empty(0, np.int64), np.empty((0, COLUMNS), np.int64))


class Batch(NamedTuple):
    session: str
    number: int
    node: int
    sent_s: float
    samples: tuple[Sample, ...]
    others: tuple[Observation, ...]
    malformed: int  # observations that were dropped
    rank: int | None = None  # of a rank's own batch; None: of the node's recorder or prober
    prober: bool = False


def encode(
    samples: list[Sample],
    others: list[Observation],
    *,
    session: str,
    number: int,
    held: Base | None,
    node: int,
    sent_s: float,
    rank: int | None = None,
    prober: bool = False,
) -> tuple[bytes, Base]:
    """Return the body, and the state of a monitor that has read it.  `held` is the monitor's state before."""
    before = held or NOTHING
    polls: list[list[Any]] = []
    for _, alike in groupby(samples, key=lambda sample: sample.peers.tobytes()):
        run = list(alike)
        polls.append(_run(run, before, sent_s=sent_s))
        before = Base(number, run[-1].peers, run[-1].rows)
    body = pack(
        session=session,
        number=number,
        base=None if held is None else held.number,
        node=node,
        sent_s=sent_s,
        polls=polls,
        others=[_short(other, sent_s) for other in others],
        rank=rank,
        prober=prober,
    )
    return body, before._replace(number=number)


def decode(body: bytes, *, held_of: HeldOf) -> tuple[Batch, Base]:
    """Return a batch and the state after it; `held_of` returns the state of a session.  Raise WireError for every
    invalid body.
    """
    document = _document(body)
    session, number, node, sent_s, base = _head(document)
    held = None if base is None else held_of(node, session)
    if base is not None and (held is None or held.number != base):
        raise BaseMissingError("builds on a batch that is not held")
    before = held or NOTHING
    samples: list[Sample] = []
    for run in _list(document, "looks", max_length=MAX_POLLS):
        samples += _samples(run, before, node=node, sent_s=sent_s)
        before = Base(number, samples[-1].peers, samples[-1].rows)
    if len(samples) > MAX_POLLS:
        raise WireError(f"expected at most {MAX_POLLS} looks")
    rank, prober = _rank(document), _is_of_a_prober(document)
    found = _list(document, "others", max_length=MAX_OTHERS)
    others = _others(found, node=node, rank=rank, prober=prober, sent_s=sent_s)
    batch = Batch(session, number, node, sent_s, tuple(samples), others, len(found) - len(others), rank, prober)
    return batch, before._replace(number=number)


def _run(run: list[Sample], before: Base, *, sent_s: float) -> list[Any]:
    """Encode polls of the same peers: [times, peers or None if equal to the previous ones, rows]."""
    peers = run[0].peers
    same = np.array_equal(peers, before.peers)
    matrices = np.stack([before.rows if same else _lined_up(before, peers), *(sample.rows for sample in run)])
    changes = np.diff(matrices, axis=0)  # polls x peers x columns
    return [
        [_ms(sample.at_s, sent_s) for sample in run],
        None if same else _packed(np.diff(peers, prepend=0)),
        _packed(changes.transpose(2, 0, 1).ravel()),
    ]


def _samples(run: Any, before: Base, *, node: int, sent_s: float) -> list[Sample]:
    if type(run) is not list or len(run) != 3 or type(run[0]) is not list or not 0 < len(run[0]) <= MAX_POLLS:
        raise WireError("expected looks as times, peers, rows")
    offsets_ms, packed_peers, packed_rows = run
    if any(type(offset) is not int or abs(offset) > 86_400_000 for offset in offsets_ms):
        raise WireError("expected times in milliseconds")
    peers = before.peers if packed_peers is None else np.cumsum(_unpacked(packed_peers, max_length=MAX_PEERS))
    if packed_peers is not None and (np.any(peers < 0) or np.any(peers >= MAX_PEERS) or np.any(np.diff(peers) <= 0)):
        raise WireError("expected peers in rising order")
    changes = _unpacked(packed_rows, max_length=MAX_PEERS * COLUMNS)
    if changes.size != len(offsets_ms) * peers.size * COLUMNS:
        raise WireError("expected a row for each look and peer")
    by_poll = changes.reshape(COLUMNS, len(offsets_ms), peers.size).transpose(1, 2, 0)
    rows = _lined_up(before, peers) + np.cumsum(by_poll, axis=0)
    if np.any(rows < 0):
        raise WireError("expected counts from 0 on")
    return [
        Sample(sent_s + offset_ms / 1e3, node, peers, np.ascontiguousarray(matrix))
        for offset_ms, matrix in zip(offsets_ms, rows, strict=True)
    ]


def _lined_up(before: Base, peers: Ints) -> Ints:
    """Return the previous rows for these peers; 0 for a new peer."""
    rows = np.zeros((peers.size, COLUMNS), np.int64)
    at = np.searchsorted(before.peers, peers)
    at[at == before.peers.size] = 0
    if before.peers.size:
        known = before.peers[at] == peers
        rows[known] = before.rows[at[known]]
    return rows


def _others(found: list[Any], *, node: int, rank: int | None, prober: bool, sent_s: float) -> tuple[Observation, ...]:
    others: list[Observation] = []
    for item in found:
        try:
            others.append(on_clock_of(from_list(item), -sent_s))
        except ValueError:
            continue
    # An agent reports its own node, a rank itself, a prober its trains.
    kinds = (Probe, ProbeReturned) if prober else object
    return tuple(
        other
        for other in others
        if other.node == node and rank in (None, other.rank) and isinstance(other.values, kinds)
    )


def _document(body: bytes) -> dict[str, Any]:
    try:
        inflater = zlib.decompressobj()
        text = inflater.decompress(body, MAX_BYTES)
        if not inflater.eof:
            raise WireError("is truncated, or larger than any batch")
        document = json.loads(text)
    except (zlib.error, ValueError, RecursionError) as error:
        raise error if isinstance(error, WireError) else WireError("is not a batch of observations") from error
    if not isinstance(document, dict) or document.get("v") != VERSION:
        raise WireError(f"expected a batch of version {VERSION}")
    return document


def _head(document: dict[str, Any]) -> tuple[str, int, int, float, int | None]:
    session, number, node = document.get("session"), document.get("number"), document.get("node")
    sent_s, base = document.get("sent_s"), document.get("base")
    if type(session) is not str or not 1 <= len(session) <= 64:
        raise WireError("expected a session's name")
    if type(number) is not int or not 0 <= number < 2**53 or not (base is None or type(base) is int):
        raise WireError("expected a batch's number")
    if type(node) is not int or not 0 <= node < MAX_PEERS:
        raise WireError("expected a node's index")
    if type(sent_s) is not float or not 0.0 <= sent_s < 1e11:
        raise WireError("expected the time of sending")
    return session, number, node, sent_s, base


def _rank(document: dict[str, Any]) -> int | None:
    rank = document.get("rank")
    if rank is None:
        return None
    if type(rank) is not int or not 0 <= rank < MAX_RANKS:
        raise WireError("expected a rank's index")
    if document.get("looks"):
        raise WireError("expected no looks of a rank")
    return rank


def _is_of_a_prober(document: dict[str, Any]) -> bool:
    marked = document.get("prober")
    if marked is None:
        return False
    if marked is not True:
        raise WireError("expected true of a prober, or nothing")
    if document.get("rank") is not None or document.get("looks"):
        raise WireError("expected no rank and no looks of a prober")
    return True


def _list(document: dict[str, Any], key: str, *, max_length: int) -> list[Any]:
    found = document.get(key)
    if type(found) is not list or len(found) > max_length:
        raise WireError(f"expected at most {max_length} {key}")
    return found


def _short(other: Observation, sent_s: float) -> list[Any]:
    """Encode an observation as `to_line` does, with times from `sent_s`, to the microsecond."""
    at_s, node, values, rank, peer = on_clock_of(other, sent_s)
    short = [round(value, 6) if type(value) is float else value for value in values]
    return [round(at_s, 6), node, rank, peer, KIND_NAMES[type(values)].lower(), short]


def _ms(at_s: float, sent_s: float) -> int:
    return round((at_s - sent_s) * 1e3)


def _packed(values: Ints) -> str:
    """Encode as zigzag and LEB128: groups of 7 bits, with the high bit clear in the last byte."""
    left = ((values << 1) ^ (values >> 63)).view(np.uint64)
    sizes = np.searchsorted(_LARGER_FROM, left, side="right") + 1
    ends = np.cumsum(sizes)
    place = np.arange(sizes.sum()) - np.repeat(ends - sizes, sizes)
    flat = (np.repeat(left, sizes) >> (7 * place).astype(np.uint64)).astype(np.uint8) | np.uint8(0x80)
    flat[ends - 1] &= 0x7F
    return base64.b64encode(flat.tobytes()).decode()


def _unpacked(text: Any, *, max_length: int) -> Ints:
    if type(text) is not str or len(text) > MAX_BYTES:
        raise WireError("expected packed numbers")
    try:
        flat = np.frombuffer(base64.b64decode(text, validate=True), np.uint8)
    except (binascii.Error, ValueError) as error:
        raise WireError("expected packed numbers") from error
    if flat.size == 0:
        return np.empty(0, np.int64)
    ends = np.flatnonzero(flat < 0x80)
    if ends.size == 0 or ends[-1] != flat.size - 1 or ends.size > max_length:
        raise WireError("expected whole packed numbers")
    starts = np.r_[0, ends[:-1] + 1]
    place = np.arange(flat.size) - np.repeat(starts, ends - starts + 1)
    if place.max() > 9:
        raise WireError("expected numbers of 64 bits")
    shifted = (flat & 0x7F).astype(np.uint64) << (7 * place).astype(np.uint64)
    whole = np.add.reduceat(shifted, starts)
    return (whole >> np.uint64(1)).astype(np.int64) ^ -((whole & np.uint64(1)).astype(np.int64))
