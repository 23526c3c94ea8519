"""One window against the baseline: sums over NICs and medians agree with a plain reference."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from faults.fabric import NOWHERE, Fabric, Window
from faults.localisation.edge_kernels import UNOBSERVED
from faults.localisation.history import T4, TWO_T4, _sample, start
from faults.localisation.localiser import Localiser
from faults.localisation.settings import LocaliserSettings

KINDS = 3


@st.composite
def fabrics(draw: st.DrawFn) -> Fabric:
    """Any fabric: NICs that send to themselves or within their node or leaf, unknown leaves and cables."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    nodes, ports = draw(st.integers(1, 6)), draw(st.integers(1, 3))
    edges, leaves = draw(st.integers(1, 60)), draw(st.integers(1, 4))
    source, target = rng.integers(nodes * ports, size=(2, edges))
    leaf = rng.integers(NOWHERE, leaves, nodes * ports)
    up, down = rng.integers(NOWHERE, 2 * leaves, (2, edges))
    return Fabric(source, target, rng.integers(KINDS, size=edges), up, down, np.arange(nodes * ports) // ports, leaf)


@given(fabrics(), st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.3, 0.9, 1.0]))
def test_scores_are_the_weighted_sums_over_the_edges_of_each_entity(fabric: Fabric, seed: int, silent: float) -> None:
    rng = np.random.default_rng(seed)
    measured = 0.05 * rng.standard_t(3, len(fabric))
    measured[rng.random(len(fabric)) < silent] = np.nan
    localiser = Localiser(fabric)
    before = localiser.start()
    _, reading = localiser._read(before, Window(0.0, 10.0, measured))
    of, arrays, read = localiser.entities, reading.arrays, reading.read
    z = np.clip(arrays.residual / arrays.scale, -5.0, 5.0)
    for entity in range(len(of)):
        mine = slice(of.first[entity], of.first[entity + 1])
        share, of_edge = of.share[mine], z[of.edge[mine]]
        observed = np.isfinite(of_edge)
        norm = float((share[observed] ** 2).sum())
        assert bool(read.observed[entity]) is (norm > UNOBSERVED)
        wanted = float((share[observed] * of_edge[observed]).sum()) / norm**0.5 if norm > UNOBSERVED else 0.0
        assert read.score[entity] == pytest.approx(wanted, abs=1e-6)
    with np.errstate(invalid="ignore"):
        outlying = np.flatnonzero(arrays.residual > 2.0 * arrays.scale)
    assert read.counts.tolist() == [int(np.isfinite(measured).sum()), outlying.size]
    assert read.outlying[: outlying.size].tolist() == outlying.tolist()


def test_a_later_step_does_not_change_an_earlier_state() -> None:
    nics = np.arange(3)
    fabric = Fabric(nics, np.roll(nics, -1), np.zeros(3, np.int64), nics, nics + 3, node=nics, leaf=nics)
    localiser = Localiser(fabric)
    first, _ = localiser.step(localiser.start(), Window(0.0, 10.0, np.array([0.0, 0.1, np.nan])))
    kept = (first.slow.copy(), first.history.usual.mean.copy(), first.history.before.copy(), first.links.nats.copy())
    localiser.step(first, Window(10.0, 20.0, np.array([5.0, np.nan, -3.0])))
    now = (first.slow, first.history.usual.mean, first.history.before, first.links.nats)
    for before, after in zip(kept, now, strict=True):
        np.testing.assert_array_equal(before, after)


@given(st.lists(st.floats(-10.0, 10.0) | st.just(float("nan")), max_size=80), st.integers(0, 2**32 - 1))
def test_sampled_medians_agree_with_numpy(values: list[float], seed: int) -> None:
    rng = np.random.default_rng(seed)
    measured = np.array(values)
    foreign = rng.random(measured.size) < 0.2
    mean, before = rng.standard_normal((2, measured.size)).astype(np.float32)
    windows = rng.integers(0, 9, measured.size).astype(np.float32)
    before[rng.random(measured.size) < 0.2] = np.nan
    empty = start(measured.size, LocaliserSettings(), kinds=1)
    history = replace(
        empty, usual=empty.usual._replace(mean=mean, windows=windows), before=before, noise=np.array([0.2]),
        spread=np.array([0.5]), age=np.ones(1, np.int64),
    )  # fmt: skip
    found = _sample(history, 0, np.arange(measured.size), measured, foreign)
    observed = np.isfinite(measured) & ~foreign
    if not observed.any():
        assert found == (0.0, None, None, None)
        return
    measured, mean, before, windows = measured[observed], mean[observed], before[observed], windows[observed]
    level = np.median(measured - mean)
    step = np.abs(measured - level - before)
    scale = np.sqrt(0.04 + 1.0 / (1.0 / 0.25 + windows / 0.04))
    step = step[np.isfinite(step)]
    own = np.median(np.abs(measured - level - mean) / scale)
    assert found.total is not None
    assert found.own is not None
    assert (found.moved is None) is not bool(step.size)
    wanted = [level, np.median(np.abs(measured - level)) / T4, np.median(step) / TWO_T4 if step.size else 0.0, own / T4]
    np.testing.assert_allclose([found.level, found.total, found.moved or 0.0, found.own], wanted, rtol=1e-6)
