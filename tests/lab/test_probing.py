"""Tests probes over real links: the lowest delay of each direction depends only on the rate of its slower end."""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import pytest

from deploy.telemetry.peers import Peers
from deploy.telemetry.prober import Prober
from faults.observations import Probe
from tests.testbed.lab.network import Network, running_network

pytestmark = pytest.mark.lab

NODES = 3
RATE_MBIT = 80.0
SIZE_BYTES = 48 << 10
BURST_BYTES = 16 << 10  # the burst of the shaper
POLLS = 10
POLL_S = 0.05
Edge = tuple[int, int]
EDGES = {(node, other) for node in range(NODES) for other in range(NODES) if other != node}


def test_the_delay_of_a_probe_matches_the_link_rate() -> None:
    with running_network(nodes=NODES, rate_mbit=RATE_MBIT) as network, probing(network) as probers:
        min_s = min_delays(probers)
    assert set(min_s) == EDGES
    expected_s = 8e-6 * (SIZE_BYTES - BURST_BYTES) / RATE_MBIT
    assert all(0.9 * expected_s <= delay_s <= 2.0 * expected_s for delay_s in min_s.values())


@pytest.mark.parametrize(
    ("what", "slow"), [("tx", {(1, 0), (1, 2)}), ("rx", {(0, 1), (2, 1)}), ("link", {(1, 2)})], ids=["tx", "rx", "link"]
)
def test_the_slow_edges_distinguish_sender_receiver_and_link(what: str, slow: set[Edge]) -> None:
    with running_network(nodes=NODES, rate_mbit=RATE_MBIT) as network, probing(network) as probers:
        before_s = min_delays(probers)
        slow_down(network, what)
        min_delays(probers, polls=2)  # receive the probes in flight
        now_s = min_delays(probers)
    ratios = {edge: now_s[edge] / before_s[edge] for edge in EDGES}
    assert {edge for edge, ratio in ratios.items() if ratio > 1.4} == slow, ratios


def slow_down(network: Network, what: str) -> None:
    """Halve a rate at node 1."""
    if what == "tx":
        network.slow_tx(1, rate_mbit=RATE_MBIT / 2)
    elif what == "rx":
        network.slow_rx(1, rate_mbit=RATE_MBIT / 2)
    else:
        network.slow_link(source=1, target=2, rate_mbit=RATE_MBIT / 2)


@contextmanager
def probing(network: Network) -> Iterator[Sequence[Prober]]:
    """Run a prober in every namespace, with one train per sample."""
    peers = Peers({network.address(node): node for node in range(NODES)})
    with ExitStack() as stack:
        made = [
            Prober(node=node, peers=peers, size_bytes=SIZE_BYTES, every_s=2 * POLL_S, namespace=network.path(node))
            for node in range(NODES)
        ]
        for prober in made:
            stack.callback(prober.close)
        yield made


def min_delays(probers: Sequence[Prober], *, polls: int = POLLS) -> dict[Edge, float]:
    """Return the lowest delay of each direction over some samples."""
    found: dict[Edge, float] = {}
    for _ in range(polls):
        for node, prober in enumerate(probers):
            for observation in prober.poll(time.time()):
                if isinstance(observation.values, Probe) and observation.peer is not None:
                    delay_s = observation.values.received_s - observation.values.sent_s
                    found[observation.peer, node] = min(delay_s, found.get((observation.peer, node), delay_s))
        time.sleep(POLL_S)  # trains are in flight meanwhile
    return found
