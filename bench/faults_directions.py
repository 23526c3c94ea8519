"""How often the whole detector separates sender, receiver and link faults over TCP, on a documented model.

Model of a job of n nodes that steps four times a second: 12 s of health, then one NIC or link is slow by a factor f.
Ring r -> r-1 (2 MB a step at 200 Mbit/s), a ring pass r -> r+1 (128 KiB), short messages to all.  A slow Tx of k slows
the data of k and, over TCP, the data sent to k by `LEAK` of it; a slow Rx the reverse; a slow link one pair, and its
opposite by half of `LEAK`.  Sockets show `SHOWN` of the slowdown (turns of the ring leave a link idle).  Noise, as
measured on healthy recordings: a ring pair 0.066 over 2.5 s, short messages 0.22, the passes of one pair `PASS_SD` each
and 0.05 between windows.  With probes each node sends a train of 64 KiB each quarter second, to all others in turn: its
second half takes the time of the slower end, within `TAIL_SD`, except `BESIDE` of them, which meet the job's bytes
(exponential, of a train's length), and `TOO_FAST`, which a shaper's allowance lets catch up; the first half of `HELD`
of them waits behind the job's bytes on arrival, so the second half catches up.  Each clock is off by up to half of
`skew`, constant, and drifts by up to 10 ppm.  Queues are in the model with 64 packets and the clock offsets; their
correctness is not assumed.
"""

from itertools import product
from typing import Final, NamedTuple

import numpy as np

from bench.harness import Row
from faults.detector import Job
from faults.diagnosis import Diagnosis, Direction, Scope
from faults.fabric import Floats
from faults.observations import Collective, Observation, Probe, Socket, SocketPoll
from faults.simulator.result import wilson
from faults.slow import SlowDetector

NODES: Final = 8
CASES: Final = 40
SEED: Final = 8
BASE_MBIT: Final = 200.0
RING_BYTES, SHORT_BYTES = 2_000_000, 32_768
STEP_S: Final = 0.25
ONSET_S, END_S = 12.0, 19.0
FAULTS: Final = ("tx", "rx", "link")
SHOWN, LEAK = 0.7, 0.7
RING_SD, SHORT_SD = 0.066 * np.sqrt(10), 0.22 * np.sqrt(10)
QUEUE_BYTES: Final = 64 * 1448.0
HEALTHY_BYTES: Final = 12e3
DRIFT: Final = 1e-5
PROBE_BYTES: Final = 65_536
TAIL_SD, BESIDE, TOO_FAST = 0.005, 0.25, 0.02  # measured in the lab (`faults_lab_noise`)
HELD: Final = 0.125  # assumed: half of those that meet bytes meet them where they arrive
CONDITIONS: Final = tuple(product((1.5, 2.0, 3.3), (0.0005, 0.005)))  # slowdown, skew in seconds


def run() -> list[Row]:
    """Share of right diagnoses per fault and slowdown; a fault that was never named counts as wrong."""
    rows = []
    for slowdown, skew_s in CONDITIONS:
        rng = np.random.default_rng(SEED)
        found = {f: [diagnosed(f, slowdown, rng, skew_s=skew_s) for _ in range(CASES)] for f in FAULTS}
        first = {f: sum(pair.first == f for pair in pairs) for f, pairs in found.items()}
        last = sum(pair.last == f for f, pairs in found.items() for pair in pairs)
        low, high = wilson(sum(first.values()), CASES * len(FAULTS)) or (0.0, 1.0)
        rows.append(
            {
                "slowdown": slowdown,
                "skew_ms": 1e3 * skew_s,
                "cases": CASES * len(FAULTS),
                "right_share": sum(first.values()) / (CASES * len(FAULTS)),
                "right_share_low_95": low,
                "right_share_high_95": high,
                **{f"{fault}_right_share": count / CASES for fault, count in first.items()},
                "last_diagnosis_right_share": last / (CASES * len(FAULTS)),
            }
        )
    return rows


class Directions(NamedTuple):
    """Return the first and the last diagnosis: the fault if node, link and direction are right, else another label."""

    first: str
    last: str


def diagnosed(fault: str, slowdown: float, rng: np.random.Generator, *, skew_s: float) -> Directions:
    node = int(rng.integers(NODES))
    diagnoses = _diagnoses(_observations(fault, slowdown, node, rng, skew_s=skew_s))
    return (
        Directions(_direction_of(diagnoses[0], node), _direction_of(diagnoses[-1], node))
        if diagnoses
        else Directions("nothing", "nothing")
    )


def _direction_of(diagnosis: Diagnosis, node: int) -> str:
    if diagnosis.scope is Scope.LINK:
        return "link" if (diagnosis.node, diagnosis.peer) == (node, (node - 1) % NODES) else "another link"
    if diagnosis.node != node:
        return "another node"
    return {Direction.TX: "tx", Direction.RX: "rx"}.get(diagnosis.direction or Direction.BOTH, "both")


def _diagnoses(observations: list[Observation]) -> list[Diagnosis]:
    detector, now_s, found = SlowDetector(Job(NODES, tuple(range(NODES)))), 0.5, list[Diagnosis]()
    for observation in observations:
        while observation.at_s > now_s:
            found += [diagnosis for diagnosis in detector.evaluate(now_s) if diagnosis.scope is not Scope.WORKLOAD][:1]
            now_s += 0.5
        detector.observe(observation)
    return found


def _observations(
    fault: str, slowdown: float, node: int, rng: np.random.Generator, *, skew_s: float
) -> list[Observation]:
    offset = rng.uniform(-skew_s / 2, skew_s / 2, NODES)
    drift = rng.uniform(-DRIFT, DRIFT, NODES)
    nominal = np.full((NODES, NODES), float(SHORT_BYTES))
    ring = (np.arange(NODES), (np.arange(NODES) - 1) % NODES)
    nominal[ring] = RING_BYTES
    noise = np.full((NODES, NODES), SHORT_SD)
    noise[ring] = RING_SD
    acked, busy = np.zeros((NODES, NODES)), np.zeros((NODES, NODES))
    found, now_s, step = [], 0.0, 0
    while now_s < END_S:
        now = slowdown if now_s >= ONSET_S else 1.0
        slow = _slow(fault, now, node)
        rate = BASE_MBIT * 1e6 / 8 / np.exp(SHOWN * slow)
        took_s = STEP_S + 0.08 * (now - 1.0) * float(rng.lognormal(0.0, 0.05))
        clock = now_s + offset + drift * now_s
        acked += nominal
        busy += nominal / rate * np.exp(noise * rng.standard_normal((NODES, NODES))) * 1e6
        found += _counter_samples(fault, now, node, clock, acked, busy, rate, rng)
        for r in range(NODES):
            arrived_s = clock[r] + 0.03 + float(rng.normal(0, 0.002))
            found.append(Observation(clock[r] + 0.2, r, Collective(step, "x", 1, arrived_s, clock[r] + 0.2, step), r))
        found += _probed(fault, now, node, clock, step, rng)
        now_s, step = now_s + took_s, step + 1
    return sorted(found, key=lambda observation: observation.at_s)


def _slow(fault: str, slowdown: float, node: int) -> Floats:
    """Log slowdown of each pair's sockets."""
    slow, log = np.zeros((NODES, NODES)), float(np.log(slowdown))
    if fault == "link":
        slow[node, node - 1], slow[node - 1, node] = log, 0.5 * LEAK * log
        return slow
    out, into = (1.0, LEAK) if fault == "tx" else (LEAK, 1.0)
    slow[node, :], slow[:, node] = out * log, into * log
    return slow


def _counter_samples(  # noqa: PLR0917 - the state of the model
    fault: str,
    slowdown: float,
    node: int,
    clock: Floats,
    acked: Floats,
    busy: Floats,
    rate: Floats,
    rng: np.random.Generator,
) -> list[Observation]:
    """All nodes sample at once, in the middle of a transfer: the bytes in flight are of this moment."""
    found, received = [], np.zeros((NODES, NODES))
    unacked = np.zeros((NODES, NODES))
    moving = rng.random() < 0.6
    for i in range(NODES):
        j = (i - 1) % NODES
        data = _on_way((fault == "tx" and i == node) or (fault == "rx" and j == node), slowdown, rng)
        data = max(data, _on_way(fault == "link" and i == node, slowdown, rng))
        acks = _on_way((fault == "tx" and j == node) or (fault == "rx" and i == node), slowdown, rng)
        unacked[i, j] = (data + acks) * moving
        received[j, i] = acks * moving + rate[i, j] * (clock[i] - clock[j]) * moving
    for i in range(NODES):
        at_s = round(float(clock[i]), 2)
        found.append(Observation(at_s, i, SocketPoll(NODES - 1)))
        for j in range(NODES):
            if j != i:
                got = acked[j, i] + received[i, j]
                counters = (1, int(acked[i, j]), int(got), int(busy[i, j]), 0, 0, 0, 0, 0)
                values = Socket(*counters, round(unacked[i, j] / 1448), *([0] * 9))
                found.append(Observation(at_s, i, values, peer=j))
    return found


def _on_way(slow: bool, slowdown: float, rng: np.random.Generator) -> float:  # noqa: FBT001 - of the model
    """Bytes one way at a moment in which the pair is busy: the healthy product, and a queue."""
    usual = HEALTHY_BYTES * float(rng.lognormal(0.0, 0.7)) / 2
    return usual + (QUEUE_BYTES * (1 - 1 / slowdown) * float(rng.uniform(0.2, 1.0)) if slow else 0.0)


def _probed(  # noqa: PLR0917 - the state of the model
    fault: str, slowdown: float, node: int, clock: Floats, step: int, rng: np.random.Generator
) -> list[Observation]:
    """A train of each node, all at the same distance; one turn of eight is idle.  Known at the next sample."""
    found = []
    distance = step % NODES + 1
    for source, target in ((r, (r + distance) % NODES) for r in range(NODES) if distance < NODES):
        link = fault == "link" and (source, target) == (node, (node - 1) % NODES)
        hit = link or (fault == "tx" and source == node) or (fault == "rx" and target == node)
        usual_s = PROBE_BYTES / 2 * 8 / (BASE_MBIT * 1e6)
        half_s = usual_s * (slowdown if hit else 1.0)
        tail_s = half_s * float(rng.normal(1.0, TAIL_SD))
        if rng.random() < HELD:
            into_s = half_s if fault == "rx" else min(half_s, usual_s)
            tail_s = max(into_s * float(rng.normal(1.0, TAIL_SD)), tail_s - float(rng.exponential(usual_s)))
        tail_s += float(rng.exponential(half_s)) if rng.random() < BESIDE else 0.0
        tail_s *= 0.7 if rng.random() < TOO_FAST else 1.0
        received_s = clock[target] + half_s + tail_s
        values = Probe(PROBE_BYTES, clock[source], received_s, tail_s)
        found.append(Observation(clock[target] + 0.25, target, values, peer=source))
    return found
