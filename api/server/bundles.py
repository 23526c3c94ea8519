"""Bundles as they travel and are kept: gzipped text, unpacked within bounds."""

import base64
import binascii
import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from typing import Final

from api.schemas.faults import BundleReplay
from api.server.problems import invalid
from faults.bundle import Bundle, read_bundle
from faults.detector import Job
from faults.diagnosis import Scope, Verdict
from faults.observations import Observation
from fleet.documents import RuleError, dotted

MAX_BYTES: Final = 64 * 1024 * 1024  # of text; minutes of some nodes are 10 MB
MAX_ACTS: Final = 200_000
# A judgement looks at every rank: 4 Hz for five minutes of 4,096 ranks, about a minute of a core.
MAX_RANK_JUDGEMENTS: Final = 5_000_000
GZIP = 16 + zlib.MAX_WBITS
PATH: Final = "bundle"
SUM: Final = b'{"sha256":'


@dataclass(frozen=True, slots=True)
class Checked:
    """A bundle that can be kept."""

    packed: bytes
    sha256: str  # as its last line says, of all before


def checked(text: str) -> Checked:
    """What came, once it has proven to be a bundle that can be replayed here; else a problem that names the field."""
    try:
        packed = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise invalid(PATH, f"is no base64: {error}") from error
    lines = list(_lines(packed))
    _refuse_costly(_read(lines))
    last = json.loads(lines[-1]) if lines[-1].startswith(SUM) else {}
    if "sha256" not in last:
        raise invalid(PATH, "goes on after its sum, expected nothing after it")
    return Checked(packed, last["sha256"])


def text_of(packed: bytes) -> bytes:
    """The bundle as it was written."""
    return b"".join(_lines(packed))


def replayed(packed: bytes, *, verdict_id: str, verdict: Verdict, clock_s: Callable[[], float]) -> BundleReplay:
    """The bundle's calls through a new watcher of this version."""
    bundle = _read(list(_lines(packed)))
    begun_s = clock_s()
    found = bundle.replayed()
    return BundleReplay(
        verdict_id=verdict_id,
        same=found == bundle.verdicts,
        names_it=any(_place(one) == _place(verdict) for one in found),
        written_by=bundle.version,
        replayed_by=version("fleetwright"),
        dropped=bundle.dropped,
        said=bundle.verdicts,
        replayed=found,
        run_s=clock_s() - begun_s,
    )


def _lines(packed: bytes) -> Iterator[bytes]:
    unpacking = zlib.decompressobj(GZIP)
    try:
        text = unpacking.decompress(packed, MAX_BYTES + 1)
    except zlib.error as error:
        raise invalid(PATH, f"is not gzipped: {error}") from error
    if len(text) > MAX_BYTES:
        raise invalid(PATH, f"holds more than {MAX_BYTES // 1024**2} MiB of text, allowed: that much")
    if not unpacking.eof or unpacking.unused_data:
        raise invalid(PATH, "is a broken gzip file, expected a whole one and nothing after it")
    yield from text.splitlines(keepends=True)


def _read(lines: list[bytes]) -> Bundle:
    try:
        return read_bundle(lines)
    except RuleError as error:
        place, message = error.violations[0]
        raise invalid(f"{PATH}.{dotted(place)}", message) from error


def _refuse_costly(bundle: Bundle) -> None:
    acts = len(bundle.acts)
    if acts > MAX_ACTS:
        raise invalid(PATH, f"holds {acts:,} calls, allowed: {MAX_ACTS:,}")
    judgements = sum(not isinstance(act, Observation) for act in bundle.acts)
    if (cost := judgements * _size(bundle.job)) > MAX_RANK_JUDGEMENTS:
        said = f"{MAX_RANK_JUDGEMENTS:,} judgements of a rank or node"
        raise invalid(PATH, f"asks for {cost:,}, allowed: {said}")


def _place(verdict: Verdict) -> tuple[object, ...]:
    """What is wrong where; a rank and its node are one place, and a link is one from either end."""
    scope = Scope.NODE if verdict.scope is Scope.RANK else verdict.scope
    return verdict.fault, scope, frozenset((verdict.node, verdict.peer)), verdict.switch


def _size(job: Job) -> int:
    return len(job.rank_node) + job.nodes + sum(map(len, job.groups))
