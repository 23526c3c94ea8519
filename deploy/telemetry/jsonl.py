"""One observation as a line of a recording."""

from typing import Any

from faults.observations import Collective, Heartbeat, Observation, PointToPoint
from faults.observations.jsonl import KIND_NAMES

Line = dict[str, Any]


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
