"""The fault monitor on every shared recording: class, place, time to detect, wrong isolations.

Replayed as it would have gone live: each observation when it was known, an evaluation every quarter second.  A fault
counts from the moment at which it was injected.  Then all of it again with the clock of each node set off by up to
5 ms, another draw each time.  The recordings and their truth lie in the shared data and are no part of this project;
without them there is nothing to replay.
"""

import json
import math
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from api.cli.faults.recordings import open_recording
from bench.harness import Row, found
from faults.diagnosis import Diagnosis, Direction, Scope
from faults.observations import on_clock_of
from faults.replay import replay

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
WAY: Final = {"tx": Direction.TX, "rx": Direction.RX, "link": Direction.FORWARD}
APART_S, DRAWS = 0.005, 6
HARMLESS: Final = ("slow_link_offring",)  # its bursts fit in the shaper's buffer: no step takes longer
MULTIGROUP: Final = "hang_fr_multigroup"  # dumps only; its README names the fault, and there is no moment to count from
MULTIGROUP_FAULT: Final = ("noncomm-hang", 2, None)


def run() -> list[Row]:
    truth = _truth()
    rows = [_row(name, truth.get(name, {})) for name in sorted([*truth, MULTIGROUP])] if truth else []
    return [*rows, *_sums(rows), *([_set_off(truth)] if truth else [])]


def _truth() -> Row:
    path = found("faults", "truth.json")
    truth: dict[str, Any] = {} if path is None else json.loads(path.read_text())
    return truth


def _set_off(truth: Mapping[str, Any]) -> Row:
    """All recordings, so many draws of clocks that are apart, as one row."""
    rows = [
        _row(name, truth[name], clocks=random.Random(f"{name}{draw}"))
        for name in sorted(truth)
        for draw in range(DRAWS)
    ]
    return {"recording": f"clocks up to {1e3 * APART_S:g} ms off, {DRAWS} draws each", **_sum(rows)}


def _row(name: str, truth: Mapping[str, Any], *, clocks: random.Random | None = None) -> Row:
    folder = found("faults", f"{name}/run.json")
    if folder is None:
        raise FileNotFoundError(name)
    recording = open_recording(folder.parent)
    observations = list(recording.observations)
    if clocks is not None:
        off_s = [clocks.uniform(-APART_S, APART_S) for _ in range(recording.job.nodes)]
        moved = (on_clock_of(observation, -off_s[observation.node]) for observation in observations)
        observations = sorted(moved, key=lambda observation: observation.at_s)
    began = time.process_time()
    diagnoses = replay(recording.job, observations)
    spent_s = time.process_time() - began
    reported = [diagnosis for diagnosis in diagnoses if diagnosis.scope is not Scope.WORKLOAD]
    expected = _expected(name, truth)
    hits = [(fault, hit) for fault in expected if (hit := _hit(reported, fault.place)) is not None]
    faulty = {(fault.place[1], fault.place[2]) for fault in expected}
    return {
        "recording": name,
        "load": round(truth["loadavg"][0], 1) if truth else None,
        "expected": "; ".join(_text_of(fault.place) for fault in expected) or "nothing",
        "reported": "; ".join(_text_of(_place(diagnosis)) for diagnosis in reported) or "nothing",
        "faults": len(expected),
        "right": len(hits),
        "directions": sum(fault.way is not None for fault in expected),
        "directions right": sum(fault.way is not None and hit.direction is fault.way for fault, hit in hits),
        "wrong": len(reported) - len(hits),
        "wrong isolations": sum(diagnosis.isolate and (diagnosis.node, None) not in faulty for diagnosis in reported),
        "time to detect s": max(
            (hit.detected_s - fault.at_s for fault, hit in hits if fault.at_s is not None), default=None
        ),
        "replay s": spent_s,
    }


Place = tuple[str, int | None, int | None]


@dataclass(frozen=True, slots=True)
class _Fault:
    place: Place
    at_s: float | None
    way: Direction | None = None


def _expected(name: str, truth: Mapping[str, Any]) -> list[_Fault]:
    if name == MULTIGROUP:
        return [_Fault(MULTIGROUP_FAULT, None)]
    events = [] if name in HARMLESS else [event for event in truth["events"] if event["kind"] in CLASS]
    return [
        _Fault(
            (CLASS[event["kind"]], event.get("rank", event.get("src")), event.get("dst")),
            event["t_real"] - truth["t_go"],
            WAY.get(event["kind"]),
        )
        for event in events
    ]


def _place(diagnosis: Diagnosis) -> Place:
    return (diagnosis.fault.value, diagnosis.node, diagnosis.peer)


def _hit(reported: Sequence[Diagnosis], place: Place) -> Diagnosis | None:
    return next((diagnosis for diagnosis in reported if _place(diagnosis) == place), None)


def _text_of(place: Place) -> str:
    fault, node, peer = place
    return f"{fault} {node}" if peer is None else f"{fault} {node}->{peer}"


def _sums(rows: Sequence[Row]) -> list[Row]:
    sums = []
    for kind in ("hang", "slow", "crash", "all"):
        mine = [row for row in rows if kind in row["expected"] or kind == "all"]
        if mine:
            sums.append({"recording": f"{kind}: {len(mine)} recordings", **_sum(mine)})
    return sums


def _sum(rows: Sequence[Row]) -> Row:
    """How many were right, and the 95th percentile of the time to detect (of few: the greatest)."""
    times = sorted(row["time to detect s"] for row in rows if row["time to detect s"] is not None)
    counted = ("faults", "right", "directions", "directions right", "wrong", "wrong isolations")
    late = times[math.ceil(0.95 * len(times)) - 1] if times else None
    return {**{name: sum(row[name] for row in rows) for name in counted}, "time to detect s": late}
