"""The sparse fit: NICs, links, both at once, and false candidates."""

import numpy as np
import pytest

from faults.diagnosis import Direction
from faults.fabric import Floats
from faults.slow.sparse_fit import Observed, explain, log_likelihoods

SIGMA = 0.1


def noise(seed: int, nodes: int = 8) -> Floats:
    values = np.random.default_rng(seed).normal(0.0, SIGMA, (nodes, nodes))
    np.fill_diagonal(values, np.nan)
    return values


def observed(slowdown: Floats, delays: Floats | None = None) -> Observed:
    unknown = np.full(slowdown.shape, np.nan)
    late = unknown if delays is None else delays
    sigma = np.full(slowdown.shape, SIGMA)
    return Observed(slowdown, sigma, late, sigma, np.zeros(slowdown.shape, dtype=np.int64))


def suspects(slowdown: Floats) -> set[tuple[int, int | None]]:
    return {entity.place for entity in explain(observed(slowdown), false_per_window=1e-4)}


def passes(late: dict[tuple[int, int], float], nodes: int = 8) -> Floats:
    """One-way messages r -> r+1."""
    values = np.full((nodes, nodes), np.nan)
    for r in range(nodes):
        values[r, (r + 1) % nodes] = 0.0
    for pair, log in late.items():
        values[pair] = log
    return values


def ring(slow: dict[tuple[int, int], float], nodes: int = 8) -> Floats:
    """Sockets of a ring r -> r-1 alone."""
    values = np.full((nodes, nodes), np.nan)
    for r in range(nodes):
        values[r, (r - 1) % nodes] = 0.0
    for pair, log in slow.items():
        values[pair] = log
    return values


@pytest.mark.parametrize(
    ("late", "direction", "place"),
    [
        ({(3, 4): 0.8}, Direction.TX, (3, None)),  # messages from 3 to both neighbours
        ({(1, 2): 0.8}, Direction.RX, (2, None)),  # messages from both neighbours to 2
        ({}, Direction.FORWARD, (3, 2)),  # one pair only
    ],
)
def test_two_slow_sends_of_a_node_are_its_sender_and_one_slow_pair_is_a_link(
    late: dict[tuple[int, int], float], direction: Direction, place: tuple[int, int | None]
) -> None:
    slow = {(3, 2): 0.8}
    (found,) = explain(observed(ring(slow), passes(late)), false_per_window=1e-4)
    assert (found.way, found.place) == (direction, place)


def test_a_sender_is_likelier_than_a_receiver_or_a_link_by_many_nats() -> None:
    measured = observed(ring({(3, 2): 0.8}), passes({(3, 4): 0.9}))
    (found,) = explain(measured, false_per_window=1e-4)
    assert (found.node, found.way) == (3, Direction.TX)
    nats = {(e.node, e.peer, e.way): value for e, value in log_likelihoods(measured, found, ()).items()}
    others = [
        value for place, value in nats.items() if place not in {(3, None, Direction.TX), (3, None, Direction.BOTH)}
    ]
    assert nats[3, None, Direction.TX] > max(others) + 5.0


@pytest.mark.parametrize("seed", range(40))
def test_noise_gives_no_suspects(seed: int) -> None:
    assert suspects(noise(seed)) == set()


@pytest.mark.parametrize("leak", [0.0, 0.3, 1.0])
def test_a_slow_sender_is_one_nic_for_any_leak_into_its_column(leak: float) -> None:
    slowdown = noise(1)
    slowdown[3] += 0.7
    slowdown[:, 3] += 0.7 * leak
    assert suspects(slowdown) == {(3, None)}


def test_one_slow_pair_is_a_link() -> None:
    slowdown = noise(2)
    slowdown[5, 4] += 1.2
    assert suspects(slowdown) == {(5, 4)}


def test_two_nics_and_a_link_are_found_together() -> None:
    slowdown = noise(3)
    slowdown[1] += 0.8
    slowdown[:, 6] += 0.9
    slowdown[4, 2] += 1.5
    assert suspects(slowdown) == {(1, None), (6, None), (4, 2)}


def test_faster_pairs_give_no_suspects() -> None:
    slowdown = noise(4)
    slowdown[2] -= 2.0
    assert suspects(slowdown) == set()


def test_unobserved_pairs_are_no_evidence() -> None:
    slowdown = noise(5)
    slowdown[3] += 0.7
    slowdown[:4, 4:] = np.nan
    assert suspects(slowdown) == {(3, None)}


def test_a_slow_link_and_its_delayed_neighbour_are_no_nic() -> None:
    slowdown = noise(6)
    slowdown[0, 5] += 0.9
    slowdown[1, 0] += 0.5
    assert (0, None) not in suspects(slowdown)
