"""Unpacks bundles in requests and in the store: gzipped text, within limits."""

import base64
import binascii
import io
import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from typing import Final

from api.jobs.outcome import refuse
from api.schemas.faults import BundleReplay
from faults.bundle import Bundle, read_bundle
from faults.detector import Job
from faults.diagnosis import Diagnosis, Scope
from faults.observations import Observation
from fleet.documents import RuleError, dotted

MAX_BYTES: Final = 64 * 1024 * 1024  # of text; some minutes of a few nodes are 10 MB
MAX_CALLS: Final = 200_000
# An evaluation reads every rank: five minutes of 4,096 ranks at 4 Hz take about a minute of a core.
MAX_RANK_EVALUATIONS: Final = 5_000_000
GZIP = 16 + zlib.MAX_WBITS
PATH: Final = "bundle"
OTHER_LINES: Final = 3  # the head, the diagnoses and the checksum


@dataclass(frozen=True, slots=True)
class Checked:
    packed: bytes
    sha256: str  # of the text before its last line


def checked(text: str) -> Checked:
    """Check that this service can replay the bundle.  Raises a problem that names the field."""
    try:
        packed = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise refuse(PATH, f"is no base64: {error}") from error
    unpacked = text_of(packed)
    _refuse_costly(_read(unpacked))
    return Checked(packed, json.loads(unpacked.splitlines()[-1])["sha256"])


def replayed(packed: bytes, *, diagnosis_id: str, diagnosis: Diagnosis, clock_s: Callable[[], float]) -> BundleReplay:
    """Replay a bundle with a new fault monitor of this version."""
    bundle = _read(text_of(packed))
    begun_s = clock_s()
    found = bundle.replayed()
    return BundleReplay(
        diagnosis_id=diagnosis_id,
        same=found == bundle.diagnoses,
        includes_report=any(_place(one) == _place(diagnosis) for one in found),
        written_by=bundle.version,
        replayed_by=version("fleetwright"),
        dropped=bundle.dropped,
        bundled=bundle.diagnoses,
        replayed=found,
        run_s=clock_s() - begun_s,
    )


def text_of(packed: bytes) -> bytes:
    unpacking = zlib.decompressobj(GZIP)
    try:
        text = unpacking.decompress(packed, MAX_BYTES + 1)
    except zlib.error as error:
        raise refuse(PATH, f"is not gzipped: {error}") from error
    if len(text) > MAX_BYTES:
        raise refuse(PATH, f"holds more than {MAX_BYTES // 1024**2} MiB of text, the limit")
    if not unpacking.eof or unpacking.unused_data:
        raise refuse(PATH, "is a broken gzip file, expected a complete one and nothing after it")
    return text


def _lines(text: bytes) -> Iterator[bytes]:
    """Yield one line after the other, so that a wrong one costs no memory for those behind it."""
    for number, line in enumerate(io.BytesIO(text), start=1):
        if number > MAX_CALLS + OTHER_LINES:
            raise refuse(PATH, f"holds more than {MAX_CALLS:,} calls, the limit")
        yield line


def _read(text: bytes) -> Bundle:
    try:
        return read_bundle(_lines(text))
    except RuleError as error:
        place, message = error.violations[0]
        raise refuse(f"{PATH}.{dotted(place)}", message) from error


def _refuse_costly(bundle: Bundle) -> None:
    evaluations = sum(not isinstance(act, Observation) for act in bundle.calls)
    if (cost := evaluations * _size(bundle.job)) > MAX_RANK_EVALUATIONS:
        raise refuse(PATH, f"needs {cost:,} evaluations of a rank or node, allowed: {MAX_RANK_EVALUATIONS:,}")


def _place(diagnosis: Diagnosis) -> tuple[object, ...]:
    """Return the class and place of a fault.  A rank equals its node, and a link has no order of its ends."""
    scope = Scope.NODE if diagnosis.scope is Scope.RANK else diagnosis.scope
    return diagnosis.fault, scope, frozenset((diagnosis.node, diagnosis.peer)), diagnosis.switch


def _size(job: Job) -> int:
    return len(job.rank_node) + job.nodes + sum(map(len, job.groups))
