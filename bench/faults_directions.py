"""How often sender, receiver and link faults are told apart over TCP, on a documented model, with and without passes.

Model of one ring of n nodes (r sends to r-1), looked at four times a second for 2.5 s.  A wire that is slow by a factor
f queues up to `QUEUE_BYTES` (1 - 1/f) of what goes through it.  A healthy pair has a lognormal amount on its way, data
and acknowledgements alike, and 1/f of it, 1/f as often, while all wait for the slow wire.  A slow Tx of k queues the
data of k -> k-1 and the acknowledgements of k+1 -> k, which is why the plain bandwidth matrix cannot tell it from a
slow Rx; a slow link queues the data of one pair.  Clocks differ by up to `skew`, which a pair turns into bytes at its
bandwidth.  A pass of 128 KiB goes r -> r+1 per step; its one-way delay is its size over the slower of the two NICs,
times lognormal noise (`PASS_SD`), plus the skew.  Where bytes wait, and passes, are all that is used: not the fit.
"""

from typing import Any, Final

import numpy as np

from faults.fabric import Floats
from faults.observations import Look, Observation, Pass, Socket
from faults.slow.detector import SECOND_LEG
from faults.slow.directions import Delays, Ways, from_delays, from_waiting, legs, waiting_bytes
from faults.slow.settings import SlowSettings
from faults.slow.sockets import Sockets
from faults.verdict import Direction

NODES: Final = 8
CASES: Final = 60
BASE_MBIT: Final = 200.0
QUEUE_BYTES: Final = 64 * 1448.0  # pfifo of 64 packets
HEALTHY_BYTES: Final = 12e3  # on its way between healthy nodes, seen in the recordings
PASS_BYTES: Final = 131072
STEP_S: Final = 0.25
FAULTS: Final = ("tx", "rx", "link")
PASS_SD: Final = 0.35
CONDITIONS: Final = tuple(
    (slowdown, passes, skew_s)
    for slowdown in (1.5, 2.0, 3.3)
    for passes, skew_s in ((True, 0.0005), (False, 0.0005), (True, 0.005))
)


def run() -> list[dict[str, Any]]:
    """Share of right answers per fault, slowdown and evidence."""
    rows = []
    for slowdown, passes, skew_s in CONDITIONS:
        rng = np.random.default_rng(7)
        right = {
            f: sum(told(f, slowdown, rng, passes=passes, skew_s=skew_s) == f for _ in range(CASES)) for f in FAULTS
        }
        rows.append(
            {
                "slowdown": slowdown,
                "ring_pass": passes,
                "skew_ms": 1e3 * skew_s,
                "cases": CASES * len(FAULTS),
                "right_share": sum(right.values()) / (CASES * len(FAULTS)),
                **{f"{fault}_right_share": count / CASES for fault, count in right.items()},
            }
        )
    return rows


def told(fault: str, slowdown: float, rng: np.random.Generator, *, passes: bool, skew_s: float) -> str:
    """What the evidence of one window says about the node at the sending end of the fault."""
    settings, node = SlowSettings(), int(rng.integers(NODES))
    skew = rng.uniform(-skew_s / 2, skew_s / 2, NODES)
    sockets, delays = Sockets(NODES, 10.0), Delays(NODES, 600.0)
    bandwidth = _looked(sockets, fault, slowdown, node=node, skew=skew, rng=rng)
    if passes:
        _passed(delays, fault, slowdown, node=node, skew=skew, rng=rng)
    data, acks = waiting_bytes(sockets, bandwidth, from_s=10.0, to_s=12.5, settings=settings)
    share, _ = legs(data, acks, node)
    out, error = delays.excess(10.0, 12.5)
    ways = Ways(from_waiting(data, acks, node), from_delays(out, error, node))
    if share < SECOND_LEG and not abs(ways.passes) > 0:
        return "link"
    return {Direction.TX: "tx", Direction.RX: "rx"}.get(ways.direction(float(np.log(slowdown))), "both")


def _looked(
    sockets: Sockets, fault: str, slowdown: float, *, node: int, skew: Floats, rng: np.random.Generator
) -> Floats:
    """Ten looks at every node."""
    down, up = (node - 1) % NODES, (node + 1) % NODES
    data_slow = {"tx": {(node, down)}, "rx": {(up, node)}, "link": {(node, down)}}[fault]
    acks_slow = {"tx": {(up, node)}, "rx": {(node, down)}, "link": set()}[fault]
    bandwidth = np.full((NODES, NODES), np.nan)
    for r in range(NODES):
        slow = (r, (r - 1) % NODES) in data_slow | acks_slow
        bandwidth[r, (r - 1) % NODES] = BASE_MBIT / (slowdown if slow else 1.0)
    for at_s in np.arange(10.05, 12.5, 0.25):
        sent: dict[tuple[int, int], tuple[float, float]] = {}
        for r in range(NODES):
            pair = (r, (r - 1) % NODES)
            sent[pair] = (_on_way(pair in data_slow, slowdown, rng), _on_way(pair in acks_slow, slowdown, rng))
        for r in range(NODES):
            sockets.see(Observation(float(at_s), r, Look(2)))
            data, acks = sent[r, (r - 1) % NODES]
            behind = bandwidth[(r + 1) % NODES, r] * 1e6 / 8 * (skew[r] - skew[(r + 1) % NODES])
            _socket(sockets, float(at_s), r, (r - 1) % NODES, acked=1e9, received=0.0, unacked=data + acks)
            got = 1e9 + sent[(r + 1) % NODES, r][1] + behind
            _socket(sockets, float(at_s), r, (r + 1) % NODES, acked=0.0, received=got, unacked=0.0)
    return bandwidth


def _on_way(slow: bool, slowdown: float, rng: np.random.Generator) -> float:  # noqa: FBT001 - of the model
    """Bytes one way at a random moment: nothing while the pair computes, else the healthy product or a queue."""
    if rng.random() > 0.6 / (1.0 if slow else slowdown):
        return 0.0
    usual = HEALTHY_BYTES * float(rng.lognormal(0.0, 0.7)) / slowdown / 2
    return usual + (QUEUE_BYTES * (1 - 1 / slowdown) * float(rng.uniform(0.2, 1.0)) if slow else 0.0)


def _socket(
    sockets: Sockets, at_s: float, node: int, peer: int, *, acked: float, received: float, unacked: float
) -> None:
    values = Socket(1, int(acked), int(received), 0, 0, 0, 0, 0, 0, round(unacked / 1448), *([0] * 9))
    sockets.see(Observation(at_s, node, values, peer=peer))


def _passed(delays: Delays, fault: str, slowdown: float, *, node: int, skew: Floats, rng: np.random.Generator) -> None:
    """Passes r -> r+1 for ten seconds in health and a window of the fault; a slow ring link is not on their way."""
    usual_s = PASS_BYTES * 8 / (BASE_MBIT * 1e6)
    for step, at_s in enumerate(np.arange(0.0, 12.5, STEP_S)):
        for r in range(NODES):
            source = (r - 1) % NODES
            hit = at_s > 10 and ((fault == "tx" and source == node) or (fault == "rx" and r == node))
            takes_s = usual_s * (slowdown if hit else 1.0) * float(rng.lognormal(0.0, PASS_SD))
            called, got = float(at_s), float(at_s + max(1e-4, takes_s + skew[r] - skew[source]))
            values = Pass(source, (r + 1) % NODES, PASS_BYTES, called, got, got, step)
            delays.see(Observation(got, r, values, r, source))
