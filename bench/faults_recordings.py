"""The watcher on every shared recording: class, place, time to detect, wrong isolations; and what the watcher costs.

Replayed as it would have gone live: each observation when it was known, a judgement every quarter second.  A fault
counts from the moment at which it was injected.  The recordings and their truth lie in the shared data and are no part
of this project; without them there is nothing to replay, and only the costs are measured.
"""

import json
import time
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, Final

from api.cli.recordings import open_recording
from bench.data import found
from faults.detector import Job
from faults.observations import Collective, Heartbeat, Look, Observation, Socket
from faults.replay import replay
from faults.verdict import Scope, Verdict
from faults.watcher import Watcher, WatcherSettings

Row = dict[str, Any]
Events = Sequence[Mapping[str, Any]]

CLASS: Final = {
    "stop": "noncomm-hang",
    "rank:spin_hang": "noncomm-hang",
    "node_cut": "comm-hang",
    "pair_cut": "comm-hang",
    "kill": "crash",
    "tx": "comm-slow",
    "rx": "comm-slow",
    "link": "comm-slow",
    "rank:delay": "noncomm-slow",
}
HARMLESS: Final = ("slow_link_offring",)  # its bursts fit in the shaper's buffer: no step takes longer
MULTIGROUP: Final = (
    "hang_fr_multigroup"  # dumps only; its README gives the answer, and there is no moment to count from
)
MULTIGROUP_ANSWER: Final = ("noncomm-hang", 2, None)


def run() -> list[Row]:
    """A row per recording, then the sums, then the costs."""
    rows = list(_recordings())
    return [*rows, *_sums(rows), *(_cost(nodes) for nodes in (8, 64, 256))]


def _recordings() -> list[Row]:
    path = found("faults", "truth.json")
    if path is None:
        return []
    truth = json.loads(path.read_text())
    return [_row(name, truth.get(name, {})) for name in sorted([*truth, MULTIGROUP])]


def _row(name: str, truth: Mapping[str, Any]) -> Row:
    folder = found("faults", f"{name}/run.json")
    if folder is None:
        raise FileNotFoundError(name)
    recording = open_recording(folder.parent)
    began = time.process_time()
    verdicts = replay(recording.job, recording.observations)
    spent_s = time.process_time() - began
    said = [verdict for verdict in verdicts if verdict.scope is not Scope.WORKLOAD]
    expected = _expected(name, truth)
    hits = [(at_s, hit) for what, at_s in expected if (hit := _hit(said, what)) is not None]
    told = {(what[1], what[2]) for what, _ in expected}
    return {
        "recording": name,
        "load": round(truth["loadavg"][0], 1) if truth else None,
        "expected": "; ".join(_words(what) for what, _ in expected) or "nothing",
        "said": "; ".join(_words(_place(verdict)) for verdict in said) or "nothing",
        "faults": len(expected),
        "right": len(hits),
        "wrong": len(said) - len(hits),
        "wrong isolations": sum(verdict.isolate and (verdict.node, None) not in told for verdict in said),
        "time to detect s": max((hit.detected_s - at_s for at_s, hit in hits if at_s is not None), default=None),
        "replay s": spent_s,
    }


def _expected(name: str, truth: Mapping[str, Any]) -> list[tuple[tuple[str, int, int | None], float | None]]:
    if name == MULTIGROUP:
        return [(MULTIGROUP_ANSWER, None)]
    events = [] if name in HARMLESS else [event for event in truth["events"] if event["kind"] in CLASS]
    return [
        ((CLASS[event["kind"]], event.get("rank", event.get("src")), event.get("dst")), event["t_real"] - truth["t_go"])
        for event in events
    ]


def _place(verdict: Verdict) -> tuple[str, int | None, int | None]:
    return (verdict.fault.value, verdict.node, verdict.peer)


def _hit(said: Sequence[Verdict], what: tuple[str, int, int | None]) -> Verdict | None:
    return next((verdict for verdict in said if _place(verdict) == what), None)


def _words(what: tuple[str, int | None, int | None]) -> str:
    fault, node, peer = what
    return f"{fault} {node}" if peer is None else f"{fault} {node}->{peer}"


def _sums(rows: Sequence[Row]) -> list[Row]:
    """By kind of fault: how many were right, and the 95th percentile of the time to detect (of few: the greatest)."""
    sums = []
    for kind in ("hang", "slow", "crash", "all"):
        mine = [row for row in rows if kind in row["expected"] or kind == "all"]
        if not mine:
            continue
        times = sorted(row["time to detect s"] for row in mine if row["time to detect s"] is not None)
        sums.append(
            {
                "recording": f"{kind}: {len(mine)} recordings",
                "faults": sum(row["faults"] for row in mine),
                "right": sum(row["right"] for row in mine),
                "wrong": sum(row["wrong"] for row in mine),
                "wrong isolations": sum(row["wrong isolations"] for row in mine),
                "time to detect s": times[min(len(times) - 1, int(0.95 * len(times)))] if times else None,
            }
        )
    return sums


def _cost(nodes: int) -> Row:
    """A healthy ring of so many nodes for 20 s: what a judgement and an observation cost, hangs and crashes alone."""
    watcher = Watcher(Job(nodes, tuple(range(nodes))), WatcherSettings(slow=None))
    judged, seen_s, count = [], 0.0, 0
    for quarter in range(80):
        told = _told(nodes, quarter)
        began = time.process_time()
        for observation in told:
            watcher.see(observation)
        seen_s += time.process_time() - began
        count += len(told)
        began = time.process_time()
        watcher.judge(0.25 * quarter + 0.2)
        judged.append(time.process_time() - began)
    return {
        "recording": f"cost, {nodes} nodes",
        "judgement p50 ms": 1e3 * median(judged),
        "judgement max ms": 1e3 * max(judged),
        "observation us": 1e6 * seen_s / count,
    }


def _told(nodes: int, quarter: int) -> list[Observation]:
    """One quarter second: a look at two peers and a record from each node, a heartbeat every second time."""
    at_s, told = 0.25 * quarter, []
    socket = Socket(1, quarter * 10**6, quarter * 10**6, quarter * 10**4, 0, 0, 200, 100, 10, *[0] * 10)
    for node in range(nodes):
        told.append(Observation(at_s, node, Look(2)))
        told += [Observation(at_s, node, socket, peer=(node + step) % nodes) for step in (1, nodes - 1)]
        record = Collective(quarter + 1, "all_reduce", 10**6, at_s, at_s + 0.1, quarter)
        told.append(Observation(at_s + 0.1, node, record, rank=node))
        if quarter % 2:
            told.append(Observation(at_s + 0.1, node, Heartbeat(quarter + 1, quarter + 1, None, quarter, "comm"), node))
    return told
