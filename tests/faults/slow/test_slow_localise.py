"""The sparse fit: NICs, links, both at once, and what must not be accused."""

import numpy as np
import pytest

from faults.fabric import Floats
from faults.slow.localise import explain

SIGMA = 0.1


def noise(seed: int, nodes: int = 8) -> Floats:
    values = np.random.default_rng(seed).normal(0.0, SIGMA, (nodes, nodes))
    np.fill_diagonal(values, np.nan)
    return values


def accused(slowdown: Floats) -> set[tuple[int, int | None]]:
    found = explain(slowdown, np.full(slowdown.shape, SIGMA), false_per_window=1e-4)
    return {(entity.node, entity.peer) for entity in found}


@pytest.mark.parametrize("seed", range(40))
def test_noise_accuses_nobody(seed: int) -> None:
    assert accused(noise(seed)) == set()


@pytest.mark.parametrize("leak", [0.0, 0.3, 1.0])
def test_a_slow_sender_is_one_nic_however_much_its_column_suffers(leak: float) -> None:
    slowdown = noise(1)
    slowdown[3] += 0.7
    slowdown[:, 3] += 0.7 * leak
    assert accused(slowdown) == {(3, None)}


def test_one_slow_pair_is_a_link() -> None:
    slowdown = noise(2)
    slowdown[5, 4] += 1.2
    assert accused(slowdown) == {(5, 4)}


def test_two_nics_and_a_link_at_once() -> None:
    slowdown = noise(3)
    slowdown[1] += 0.8
    slowdown[:, 6] += 0.9
    slowdown[4, 2] += 1.5
    assert accused(slowdown) == {(1, None), (6, None), (4, 2)}


def test_pairs_that_got_faster_accuse_nobody() -> None:
    slowdown = noise(4)
    slowdown[2] -= 2.0
    assert accused(slowdown) == set()


def test_unheard_pairs_are_no_evidence() -> None:
    slowdown = noise(5)
    slowdown[3] += 0.7
    slowdown[:4, 4:] = np.nan
    assert accused(slowdown) == {(3, None)}


def test_a_slow_link_and_its_held_up_neighbour_are_no_nic() -> None:
    slowdown = noise(6)
    slowdown[0, 5] += 0.9
    slowdown[1, 0] += 0.5
    assert (0, None) not in accused(slowdown)
