"""A bundle: the calls, the settings and the diagnoses of a fault monitor, for an exact replay.

Canonical JSON, one value per line:

    {"bundle": 2, "dropped": D, "job": {...}, "settings": {...}, "told": [...], "version": "..."}
    ["judge", now_s] or an observation's line, in the order of the calls
    {"verdicts": [...]}
    {"sha256": "..."}   of all lines before

Replaying the calls gives the same diagnoses bit for bit: the monitor reads no clock and draws no random numbers, and
every number reads back as the same double.  A call log keeps only the newest calls.  If it dropped D calls, the
diagnoses are those of a new monitor on the rest.  Observations hold counters, times and phases, and no payload,
address or environment.  docs/explanation/faults/bundles.md
"""

import hashlib
import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from pydantic import ValidationError

from faults.detector import Job, JobFabric, is_indices, is_leaves
from faults.diagnosis import Diagnosis
from faults.monitor import FaultMonitor, MonitorSettings
from faults.observation_jsonl import FARTHEST, from_line, to_line
from faults.observations import Observation
from faults.replay import Call, run
from fleet.documents import RuleError, validation_problems

FORMAT: Final = 2
# Format 1, of version 0.1.0, differs in the names of these settings, here by their place.
FORMAT_1_SETTINGS: Final[Mapping[tuple[str, ...], Mapping[str, str]]] = {
    ("slow",): {
        "least_slowdown": "min_slowdown",
        "least_harm": "min_harm",
        "least_implied_harm": "min_implied_harm",
        "most_nodes": "max_nodes",
    },
    ("jobwide",): {"most_pairs": "max_pairs", "least_probes": "min_probes"},
    ("jobwide", "localiser"): {"least_slowdown": "min_slowdown", "least_confidence": "min_confidence"},
}
MAX_CALLS: Final = 200_000  # 92 MB of memory, 20 MB of text: 8 minutes of 8 nodes with records at 4 Hz
MAX_LINE: Final = 1 << 20
MAX_NODES: Final = 1 << 17  # as many as a recording may have
HEAD: Final = frozenset({"bundle", "dropped", "job", "settings", "told", "version"})


class CallLog:
    def __init__(self, max_calls: int = MAX_CALLS) -> None:
        self._calls: deque[Call] = deque(maxlen=max_calls)
        self.dropped = 0

    def add(self, call: Call) -> None:
        self.dropped += len(self._calls) == self._calls.maxlen
        self._calls.append(call)

    def __iter__(self) -> Iterator[Call]:
        return iter(self._calls)

    def __len__(self) -> int:
        return len(self._calls)


@dataclass(frozen=True, slots=True)
class Bundle:
    job: Job
    settings: MonitorSettings
    version: str
    dropped: int
    calls: tuple[Call, ...]
    diagnoses: tuple[Diagnosis, ...]
    live: tuple[Diagnosis, ...] = ()  # of the live monitor, which had all calls
    has_ranks: bool = True  # diagnoses of releases up to 0.2.0 have no rank

    def replayed(self) -> tuple[Diagnosis, ...]:
        found = run(FaultMonitor(self.job, self.settings), self.calls)
        return found if self.has_ranks else tuple(each.model_copy(update={"rank": None}) for each in found)

    @property
    def holds(self) -> bool:
        """Return whether the replay equals the bundle's diagnoses, bit for bit."""
        return self.replayed() == self.diagnoses


def write_bundle(
    job: Job,
    settings: MonitorSettings,
    calls: Iterable[Call],
    *,
    version: str,
    dropped: int = 0,
    live: Iterable[Diagnosis] = (),
) -> Iterator[str]:
    """Return the lines of a bundle, each with its newline.  Its diagnoses are those of a replay of the calls."""
    digest = hashlib.sha256()
    monitor = FaultMonitor(job, settings)

    def line(text: str) -> str:
        digest.update(f"{text}\n".encode())
        return f"{text}\n"

    head = {"bundle": FORMAT, "dropped": dropped, "job": asdict(job), "version": version}
    if live_json := [diagnosis.model_dump(mode="json") for diagnosis in live]:
        head["told"] = live_json
    yield line(_canonical({**head, "settings": settings.model_dump(mode="json")}))
    for call in calls:
        run(monitor, (call,))
        yield line(to_line(call) if isinstance(call, Observation) else _canonical(["judge", call]))
    yield line(_canonical({"verdicts": [diagnosis.model_dump(mode="json") for diagnosis in monitor.diagnoses()]}))
    yield _canonical({"sha256": digest.hexdigest()}) + "\n"


def read_bundle(lines: Iterable[str | bytes]) -> Bundle:
    """Parse a bundle and check its checksum; raise a RuleError that names the line."""
    digest = hashlib.sha256()
    head: dict[str, Any] = {}
    calls: list[Call] = []
    diagnoses: tuple[Diagnosis, ...] | None = None
    number, has_checksum, has_ranks = 0, False, True
    for number, line in enumerate(lines, start=1):
        if has_checksum:
            raise _line_error(number, "has lines after the checksum, expected none")
        text, found = _parsed(line, number)
        if not head:
            head = _head(found, number)
        elif isinstance(found, dict) and "sha256" in found:
            if found != {"sha256": digest.hexdigest()}:
                raise _line_error(number, "the checksum does not match the lines")
            has_checksum = True
        elif isinstance(found, dict) and set(found) == {"verdicts"} and diagnoses is None:
            diagnoses = _diagnoses(found, number)
            has_ranks = all("rank" in each for each in found["verdicts"])
        elif diagnoses is None:
            calls.append(_call(found, text, number))
        else:
            raise _line_error(number, "expected the checksum after the diagnoses")
        digest.update(f"{text}\n".encode())
    if not has_checksum:
        raise _line_error(number, "ends before its checksum, expected the whole bundle")
    if diagnoses is None:
        raise _line_error(number, "has no diagnoses, expected the whole bundle")
    live = _diagnoses({"verdicts": head.get("told", [])}, 1)
    return Bundle(
        job=_job(head),
        settings=_settings(head),
        version=str(head["version"]),
        dropped=head["dropped"],
        calls=tuple(calls),
        diagnoses=diagnoses,
        live=live,
        has_ranks=has_ranks,
    )


def proves(live: Iterable[Diagnosis], diagnoses: Iterable[Diagnosis]) -> bool:
    """Return whether each live diagnosis is among these, by class, place, direction and `isolate`; times can differ."""
    claims = {_claim(diagnosis) for diagnosis in diagnoses}
    return all(_claim(diagnosis) in claims for diagnosis in live)


def diagnoses_in(line: str) -> tuple[Diagnosis, ...] | None:
    """Return the diagnoses of a written line; None for another kind of line."""
    return _diagnoses(json.loads(line), 0) if line.startswith('{"verdicts":') else None


def _claim(diagnosis: Diagnosis) -> tuple[object, ...]:
    place = diagnosis.scope, diagnosis.node, diagnosis.peer, diagnosis.switch, diagnosis.direction
    return diagnosis.fault, *place, diagnosis.isolate


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=True)


def _line_error(number: int, message: str) -> RuleError:
    return RuleError([(("line", number), message)])


def _parsed(line: str | bytes, number: int) -> tuple[str, Any]:
    """Return the text of a line without its end, and its value."""
    if len(line) > MAX_LINE:
        raise _line_error(number, f"is longer than {MAX_LINE:,} characters")
    try:
        text = (line.decode("ascii") if isinstance(line, bytes) else line).removesuffix("\n")
        return text, json.loads(text)
    except UnicodeDecodeError as error:
        raise _line_error(number, "is no ASCII text, expected a line of a bundle") from error
    except (ValueError, RecursionError) as error:
        raise _line_error(number, "is no JSON, expected a line of a bundle") from error


def _head(found: Any, number: int) -> dict[str, Any]:
    if not isinstance(found, dict) or found.get("bundle") not in (1, FORMAT):
        raise _line_error(number, f"expected the head of a bundle of format 1 or {FORMAT}")
    if unknown := sorted(set(found) - HEAD):
        raise _line_error(number, f"{unknown[0][:80]!r} is not a known field of the head")
    dropped = found.get("dropped")
    if type(dropped) is not int or dropped < 0 or not isinstance(found.get("version"), str):
        raise _line_error(number, "expected `dropped`, an integer of at least 0, and `version`, a string")
    return found


def _call(found: Any, text: str, number: int) -> Call:
    if isinstance(found, list) and len(found) == 2 and found[0] == "judge" and type(found[1]) in (int, float):
        if not -FARTHEST < found[1] < FARTHEST:
            raise _line_error(number, f"has no valid time, expected seconds within +-{FARTHEST:g}")
        return float(found[1])
    try:
        return from_line(text)
    except (ValueError, RuntimeError) as error:
        raise _line_error(number, f"is no observation: {error}") from error


def _diagnoses(found: dict[str, Any], number: int) -> tuple[Diagnosis, ...]:
    if not isinstance(found["verdicts"], list):
        raise _line_error(number, "expected a list of diagnoses")
    try:
        return tuple(Diagnosis.model_validate(diagnosis) for diagnosis in found["verdicts"])
    except ValidationError as error:
        raise RuleError((("line", number, *path), text) for path, text in validation_problems(error)) from error


def _job(head: dict[str, Any]) -> Job:
    job = head.get("job")
    fields = {"nodes", "rank_node", "groups", "look_period_s", "heartbeat_s", "fabric"}
    if not isinstance(job, dict) or set(job) != fields:
        raise _line_error(1, f"expected a job with {', '.join(sorted(fields))}")
    nodes, rank_node, groups = job["nodes"], job["rank_node"], job["groups"]
    if type(nodes) is not int or not 1 <= nodes <= MAX_NODES:
        raise _line_error(1, f"expected job.nodes from 1 to {MAX_NODES:,}")
    if not is_indices(rank_node, below=nodes) or not 1 <= len(rank_node) <= MAX_NODES:
        raise _line_error(1, f"expected job.rank_node as 1 to {MAX_NODES:,} nodes from 0 to {nodes - 1}")
    if not isinstance(groups, list) or not all(is_indices(group, below=len(rank_node)) for group in groups):
        raise _line_error(1, f"expected job.groups as lists of ranks from 0 to {len(rank_node) - 1}")
    periods = [job["look_period_s"], job["heartbeat_s"]]
    if not all(type(period) in (int, float) and 0.0 < period <= 3600.0 for period in periods):
        raise _line_error(1, "expected job.look_period_s and job.heartbeat_s from above 0 to 3600 s")
    look_period_s, heartbeat_s = map(float, periods)
    members = tuple(tuple(group) for group in groups)
    return Job(nodes, tuple(rank_node), members, look_period_s, heartbeat_s, _fabric(job))


def _fabric(job: dict[str, Any]) -> JobFabric | None:
    fabric = job["fabric"]
    if fabric is None:
        return None
    leaves = fabric.get("leaves") if isinstance(fabric, dict) and len(fabric) == 1 else None
    if not is_leaves(leaves, nodes=job["nodes"]):
        raise _line_error(
            1, f"expected job.fabric as null or leaves: the name of the leaf of each of {job['nodes']} nodes"
        )
    return JobFabric(tuple(leaves))


def _settings(head: dict[str, Any]) -> MonitorSettings:
    settings = head.get("settings")
    if head["bundle"] == 1:
        _rename_settings(settings)
    try:
        return MonitorSettings.model_validate(settings)
    except ValidationError as error:
        raise RuleError((("line", 1, "settings", *path), text) for path, text in validation_problems(error)) from error


def _rename_settings(settings: Any) -> None:
    for path, names in FORMAT_1_SETTINGS.items():
        part = settings
        for name in path:
            part = part.get(name) if isinstance(part, dict) else None
        if isinstance(part, dict):
            part.update({new: part.pop(old) for old, new in names.items() if old in part})
