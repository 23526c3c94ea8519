"""A recording folder for `fleetwright faults replay`: run.json, and per node or rank one file a kind.

A line is one observation or one poll.  Lines are written together at the end of a poll, at most `held_s` after they
were observed, so that a concurrent reader, or one after a crash, finds whole lines.
docs/explanation/faults/observations.md has the schema.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isclose
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np

from deploy.telemetry.diag import Sample
from faults.detector import Job
from faults.observation_jsonl import KIND_NAMES
from faults.observations import Collective, Heartbeat, Observation, PointToPoint
from faults.readers.run import RUN, parse_run
from fleet.documents import RuleError
from fleet.errors import FleetwrightError

Line = dict[str, Any]
EARLY_S: Final = 0.05  # polls are a little early or late
_encoded: Final = json.JSONEncoder(separators=(",", ":")).encode


def line_of(observation: Observation) -> tuple[str, Line]:
    """Return (file, line).  Ranks have their own files; other observations of a node share one file."""
    values = observation.values
    if isinstance(values, Heartbeat) and observation.rank is not None:
        return f"hb_rank{observation.rank}.jsonl", _heartbeat(observation.at_s, observation.rank, values)
    if isinstance(values, Collective) and observation.rank is not None:
        return f"coll_rank{observation.rank}.jsonl", _collective(values)
    if isinstance(values, PointToPoint) and observation.rank is not None:
        return f"coll_rank{observation.rank}.jsonl", _pass(values)
    return f"seen_node{observation.node}.jsonl", _observed(observation)


class OtherRunError(FleetwrightError):
    """The folder holds a recording of another job, or of another rate."""


class RecordingFolder:
    """The output of one node's recorder.  Recorders of several nodes may share a folder and continue in it."""

    def __init__(
        self,
        path: Path,
        *,
        run: Mapping[str, Any],
        held_s: float = 0.0,
        steady_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.path = path
        self._held_s, self._steady_s = held_s, steady_s
        self._written_s = steady_s()
        path.mkdir(parents=True, exist_ok=True)
        self._open: dict[str, BinaryIO] = {}
        self._held: list[Sample | Observation] = []
        self._begin(run)

    def is_due(self) -> bool:
        """Return False, because lines are not urgent."""
        return False

    def sample(self, sample: Sample) -> None:
        self._held.append(sample)

    def observed(self, observations: Sequence[Observation]) -> None:
        self._held.extend(observations)

    def flush(self) -> None:
        now_s = self._steady_s()
        if self._held and now_s - self._written_s > self._held_s - EARLY_S:
            self._written_s = now_s
            self._write_out()

    def close(self) -> None:
        try:
            self._write_out()
        finally:
            self._close()

    def _close(self) -> None:
        while self._open:
            self._open.popitem()[1].close()

    def _begin(self, run: Mapping[str, Any]) -> None:
        try:
            with (self.path / RUN).open("x", encoding="utf-8") as file:
                file.write(json.dumps(run, indent=1) + "\n")
        except FileExistsError:
            return  # another node's recorder, or the job, was first

    def _write_out(self) -> None:
        """Write the lines; those that a full disk refuses are lost."""
        held, self._held = self._held, []
        by_name: dict[str, list[str]] = {}
        for entry in held:
            name, line = _socket_line(entry) if isinstance(entry, Sample) else _line(entry)
            by_name.setdefault(name, []).append(line)
        for name, lines in by_name.items():
            if name not in self._open:
                self._open[name] = (self.path / name).open("ab", buffering=0)
            self._open[name].write("".join(lines).encode())


def refuse_other_run(path: Path, *, run: Mapping[str, Any]) -> None:
    file = path / RUN
    try:
        there, here = parse_run(file.read_bytes()).job, parse_run(json.dumps(run).encode()).job
    except (FileNotFoundError, RuleError):
        return  # absent, being written by another recorder, or invalid: a replay reports that
    for field, theirs, ours in _differences(there, here):
        raise OtherRunError(f"{file}: {field}: is {theirs} there and {ours} here, expected a folder of its own")


def _heartbeat(at_s: float, rank: int, beat: Heartbeat) -> Line:
    return {
        "t": round(at_s, 6),
        "rank": rank,
        "enq": beat.entered,
        "done": beat.finished,
        "op": beat.op,
        "step": beat.step,
        "phase": beat.phase,
    }


def _collective(done: Collective) -> Line:
    line: Line = {"seq": done.seq, "op": done.op, "n": done.size_bytes, "t0": done.arrived_s, "t1": done.finished_s}
    if done.step is not None:
        line["step"] = done.step
    if done.group:
        line["group"] = done.group
    return line


def _pass(done: PointToPoint) -> Line:
    line: Line = {
        "op": "p2p",
        "src": done.source,
        "dst": done.to,
        "n": done.size_bytes,
        "t0": done.called_s,
        "tr": done.received_s,
        "ts": done.sent_s,
    }
    if done.step is not None:
        line["step"] = done.step
    return line


def _observed(observation: Observation) -> Line:
    line: Line = {"t": round(observation.at_s, 6), "node": observation.node}
    for key in ("rank", "peer"):
        if (value := getattr(observation, key)) is not None:
            line[key] = value
    return line | {"kind": KIND_NAMES[type(observation.values)], "v": list(observation.values)}


def _differences(there: Job, here: Job) -> Iterator[tuple[str, object, object]]:
    """Yield (field, value there, value here), as a replay reads both."""
    if len(there.rank_node) != len(here.rank_node):
        yield "n", len(there.rank_node), len(here.rank_node)
    for rank, (theirs, ours) in enumerate(zip(there.rank_node, here.rank_node, strict=False)):
        if theirs != ours:
            yield f"rank_node[{rank}]", theirs, ours
    if not isclose(there.look_period_s, here.look_period_s, rel_tol=1e-4):
        yield "sample_hz", f"{1.0 / there.look_period_s:g}", f"{1.0 / here.look_period_s:g}"


def _socket_line(sample: Sample) -> tuple[str, str]:
    """Return (file, line); formatting a list of whole numbers this way costs half as much as `json`."""
    rows = np.column_stack((sample.peers, sample.rows)).tolist()
    line = f'{{"t":{round(sample.at_s, 6)!r},"node":{sample.node},"c":{rows}}}\n'
    return f"tcp_node{sample.node}.jsonl", line.replace(" ", "")


def _line(observation: Observation) -> tuple[str, str]:
    name, line = line_of(observation)
    return name, _encoded(line) + "\n"
