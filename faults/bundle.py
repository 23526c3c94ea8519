"""A bundle: what a watcher was told, what it said, and all it went by, so that anybody can make it say it again.

Canonical JSON, one value a line:

    {"bundle": 1, "dropped": D, "job": {...}, "settings": {...}, "told": [...], "version": "..."}
    ["judge", now_s] or an observation's line, in the order of the calls
    {"verdicts": [...]}
    {"sha256": "..."}   of all lines before

Replaying the calls gives the same verdicts bit for bit: a watcher has no clock and draws no lots, and numbers are
written so that reading gives the same ones.  A tape keeps the newest calls only; if it had to drop any (D), the
verdicts are those that a new watcher reaches from what is left.  Observations hold counters, times and phases: no
payload, no address, no environment, so a bundle has no secrets to lose.
"""

import hashlib
import json
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

from pydantic import ValidationError

from faults.detector import Job, JobFabric, is_leaves
from faults.diagnosis import Diagnosis
from faults.monitor import FaultMonitor, MonitorSettings
from faults.observations import Observation, from_line, to_line
from faults.observations.jsonl import FARTHEST
from faults.replay import Act, run
from fleet.documents import RuleError, validation_problems

FORMAT: Final = 1
MAX_ACTS: Final = 200_000  # 92 MB of memory, 20 MB of text: 8 minutes of 8 nodes with records at 4 Hz
MAX_LINE: Final = 1 << 20
MAX_NODES: Final = 1 << 17  # as many as a recording may have
HEAD: Final = frozenset({"bundle", "dropped", "job", "settings", "told", "version"})


class Tape:
    """The newest calls of a watcher."""

    def __init__(self, most: int = MAX_ACTS) -> None:
        self._acts: deque[Act] = deque(maxlen=most)
        self.dropped = 0

    def add(self, act: Act) -> None:
        """An observation that was seen, or the moment of a judgement."""
        self.dropped += len(self._acts) == self._acts.maxlen
        self._acts.append(act)

    def __iter__(self) -> Iterator[Act]:
        return iter(self._acts)

    def __len__(self) -> int:
        return len(self._acts)


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle read back, not yet replayed."""

    job: Job
    settings: MonitorSettings
    version: str
    dropped: int
    acts: tuple[Act, ...]
    diagnoses: tuple[Diagnosis, ...]
    told: tuple[Diagnosis, ...] = ()  # what it was written for, as the watcher had it that heard everything

    def replayed(self) -> tuple[Diagnosis, ...]:
        """What a new watcher says of the same calls."""
        return run(FaultMonitor(self.job, self.settings), self.acts)

    @property
    def holds(self) -> bool:
        """Whether that is, bit for bit, what the bundle says."""
        return self.replayed() == self.diagnoses

    @property
    def proves(self) -> bool:
        """Whether its verdicts hold what it was written for: a tape that dropped calls may not reach so far back."""
        return proves(self.told, self.diagnoses)


def write_bundle(
    job: Job,
    settings: MonitorSettings,
    what: Iterable[Act],
    *,
    version: str,
    dropped: int = 0,
    told: Iterable[Diagnosis] = (),
) -> Iterator[str]:
    """Its lines, each with its newline.  The verdicts are made anew from the calls, so that they are theirs."""
    digest = hashlib.sha256()
    watcher = FaultMonitor(job, settings)

    def line(text: str) -> str:
        digest.update(f"{text}\n".encode())
        return f"{text}\n"

    head = {"bundle": FORMAT, "dropped": dropped, "job": asdict(job), "version": version}
    if said := [diagnosis.model_dump(mode="json") for diagnosis in told]:
        head["told"] = said
    yield line(_canonical({**head, "settings": settings.model_dump(mode="json")}))
    for act in what:
        run(watcher, (act,))
        yield line(to_line(act) if isinstance(act, Observation) else _canonical(["judge", act]))
    yield line(_canonical({"verdicts": [diagnosis.model_dump(mode="json") for diagnosis in watcher.diagnoses()]}))
    yield _canonical({"sha256": digest.hexdigest()}) + "\n"


def read_bundle(lines: Iterable[str | bytes]) -> Bundle:
    """Raises a RuleError that names the line.  Nothing of a bundle is believed before its sum is right."""
    digest = hashlib.sha256()
    head: dict[str, Any] = {}
    acts: list[Act] = []
    diagnoses: tuple[Diagnosis, ...] | None = None
    number, summed = 0, False
    for number, line in enumerate(lines, start=1):
        if summed:
            raise _wrong(number, "goes on after its sum, expected nothing behind it")
        text = _text(line, number)
        found = _value(text, number)
        if not head:
            head = _head(found, number)
        elif isinstance(found, dict) and "sha256" in found:
            if found != {"sha256": digest.hexdigest()}:
                raise _wrong(number, "the sum does not match: expected the lines as they were written")
            summed = True
        elif isinstance(found, dict) and set(found) == {"verdicts"} and diagnoses is None:
            diagnoses = _diagnoses(found, number)
        elif diagnoses is None:
            acts.append(_act(found, text, number))
        else:
            raise _wrong(number, "expected the sum after the verdicts")
        digest.update(f"{text}\n".encode())
    if not summed:
        raise _wrong(number, "ends before its sum, expected the whole bundle")
    if diagnoses is None:
        raise _wrong(number, "has no verdicts, expected the whole bundle")
    told = _diagnoses({"verdicts": head.get("told", [])}, 1)
    return Bundle(_job(head), _settings(head), str(head["version"]), head["dropped"], tuple(acts), diagnoses, told)


def proves(told: Iterable[Diagnosis], diagnoses: Iterable[Diagnosis]) -> bool:
    """Whether each that was told is among these: fault, place, way and isolation; times may differ by what was lost."""
    said = {_claim(diagnosis) for diagnosis in diagnoses}
    return all(_claim(diagnosis) in said for diagnosis in told)


def diagnoses_in(line: str) -> tuple[Diagnosis, ...] | None:
    """The verdicts of a line that was just written; none where it holds something else."""
    return _diagnoses(json.loads(line), 0) if line.startswith('{"verdicts":') else None


def _claim(diagnosis: Diagnosis) -> tuple[object, ...]:
    place = diagnosis.scope, diagnosis.node, diagnosis.peer, diagnosis.switch, diagnosis.direction
    return diagnosis.fault, *place, diagnosis.isolate


def is_bundle(first: str | bytes) -> bool:
    """Whether a file that begins with this line is one."""
    try:
        found = json.loads(first)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and found.get("bundle") == FORMAT


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=True)


def _wrong(number: int, message: str) -> RuleError:
    return RuleError([(("line", number), message)])


def _text(line: str | bytes, number: int) -> str:
    if len(line) > MAX_LINE:
        raise _wrong(number, f"is longer than {MAX_LINE:,} characters")
    try:
        text = line.decode("ascii") if isinstance(line, bytes) else line
    except UnicodeDecodeError as error:
        raise _wrong(number, "is no ASCII text, expected a line of a bundle") from error
    return text.removesuffix("\n")


def _value(text: str, number: int) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _wrong(number, "is no JSON, expected a line of a bundle") from error


def _head(found: Any, number: int) -> dict[str, Any]:
    if not isinstance(found, dict) or found.get("bundle") != FORMAT:
        raise _wrong(number, f"expected the head of a bundle of format {FORMAT}")
    if unknown := sorted(set(found) - HEAD):
        raise _wrong(number, f"{unknown[0][:80]!r} is not a known field of the head")
    dropped = found.get("dropped")
    if type(dropped) is not int or dropped < 0 or not isinstance(found.get("version"), str):
        raise _wrong(number, "expected `dropped`, a whole number from 0, and `version`, a text")
    return found


def _act(found: Any, text: str, number: int) -> Act:
    if isinstance(found, list) and len(found) == 2 and found[0] == "judge" and type(found[1]) in (int, float):
        if not -FARTHEST < found[1] < FARTHEST:
            raise _wrong(number, f"judges at no time, expected seconds within +-{FARTHEST:g}")
        return float(found[1])
    try:
        return from_line(text)
    except (ValueError, RuntimeError) as error:
        raise _wrong(number, f"is no observation: {error}") from error


def _diagnoses(found: dict[str, Any], number: int) -> tuple[Diagnosis, ...]:
    if not isinstance(found["verdicts"], list):
        raise _wrong(number, "expected a list of verdicts")
    try:
        return tuple(Diagnosis.model_validate(diagnosis) for diagnosis in found["verdicts"])
    except ValidationError as error:
        raise RuleError((("line", number, *path), text) for path, text in validation_problems(error)) from error


def _job(head: dict[str, Any]) -> Job:
    job = head.get("job")
    fields = {"nodes", "rank_node", "groups", "look_period_s", "heartbeat_s", "fabric"}
    if not isinstance(job, dict) or set(job) != fields:
        raise _wrong(1, f"expected a job with {', '.join(sorted(fields))}")
    nodes, rank_node, groups = job["nodes"], job["rank_node"], job["groups"]
    if type(nodes) is not int or not 1 <= nodes <= MAX_NODES:
        raise _wrong(1, f"expected job.nodes from 1 to {MAX_NODES:,}")
    if not _indices(rank_node, below=nodes) or not 1 <= len(rank_node) <= MAX_NODES:
        raise _wrong(1, f"expected job.rank_node as 1 to {MAX_NODES:,} nodes from 0 to {nodes - 1}")
    if not isinstance(groups, list) or not all(_indices(group, below=len(rank_node)) for group in groups):
        raise _wrong(1, f"expected job.groups as lists of ranks from 0 to {len(rank_node) - 1}")
    periods = [job["look_period_s"], job["heartbeat_s"]]
    if not all(type(period) in (int, float) and 0.0 < period <= 3600.0 for period in periods):
        raise _wrong(1, "expected job.look_period_s and job.heartbeat_s from above 0 to 3600 s")
    look_period_s, heartbeat_s = map(float, periods)
    members = tuple(tuple(group) for group in groups)
    return Job(nodes, tuple(rank_node), members, look_period_s, heartbeat_s, _fabric(job))


def _fabric(job: dict[str, Any]) -> JobFabric | None:
    fabric = job["fabric"]
    if fabric is None:
        return None
    leaves = fabric.get("leaves") if isinstance(fabric, dict) and len(fabric) == 1 else None
    if not is_leaves(leaves, nodes=job["nodes"]):
        raise _wrong(1, f"expected job.fabric as null or leaves: the name of the leaf of each of {job['nodes']} nodes")
    return JobFabric(tuple(leaves))


def _indices(found: Any, *, below: int) -> bool:
    return isinstance(found, list) and all(type(index) is int and 0 <= index < below for index in found)


def _settings(head: dict[str, Any]) -> MonitorSettings:
    try:
        return MonitorSettings.model_validate(head.get("settings"))
    except ValidationError as error:
        raise RuleError((("line", 1, "settings", *path), text) for path, text in validation_problems(error)) from error
