"""The filter and the bank agree with exact Gaussian formulas, and the scales with the simulated noise."""

from math import exp, log, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from faults.fabric import Floats
from faults.stragglers import StragglerSettings, noise_scales
from faults.stragglers import cusum as of_bank
from faults.stragglers import kalman as of_filter
from faults.stragglers.cusum import CusumBank, Observed
from faults.stragglers.kalman import FilterState
from faults.stragglers.noise_scales import Scales

WINDOW_S, NOISE, SPREAD = 5.0, 0.019, 0.01
SETTINGS = StragglerSettings(memory_s=1e6)  # next to no drift
ALONE = np.zeros(1, np.bool_)
SIZE = log(1.03)


def known(noise: float = NOISE, wander: float = 0.003) -> Scales:
    base = noise_scales.start(1, SETTINGS)
    fields = {name: getattr(base, name) for name in Scales.__slots__}
    return Scales(**fields | {"noise": noise, "wander": wander, "spread": SPREAD})


def covariance(windows: int, wander: float) -> Floats:
    """The covariance of a node's lateness over the windows."""
    at_s = WINDOW_S * np.arange(windows)
    sway = wander**2 * np.exp(-np.abs(at_s[:, None] - at_s) / SETTINGS.wander_memory_s)
    return np.asarray((of_filter.ODD * SPREAD) ** 2 + sway + NOISE**2 * np.eye(windows))


def through(late: Floats, wander: float, *, pause: float = 1e-12) -> tuple[FilterState, CusumBank, float]:
    """(filter state, bank, log-likelihood) after all windows; the bank is never reset below zero here."""
    filter_state, bank, likelihood = of_filter.start(1), of_bank.start(1, 1), 0.0
    keep = exp(-WINDOW_S / SETTINGS.wander_memory_s)
    for at, each in enumerate(late):
        before = of_filter.ahead(
            filter_state, known(wander=wander), SETTINGS, alone=ALONE, seconds=WINDOW_S, window_s=WINDOW_S
        )
        observed = np.array([bool(np.isfinite(each))])
        gain, after = of_filter.gain(before, observed, of_filter.deviation(before, NOISE))
        expected = before.usual + before.sway
        surprise = np.where(observed, each - expected, 0.0)
        filter_state = FilterState(
            before.usual + gain.usual * surprise, before.sway + gain.sway * surprise,
            after.usual2, after.both, after.sway2,
        )  # fmt: skip
        if observed[0]:
            likelihood -= 0.5 * float((surprise[0] / gain.deviation[0]) ** 2) + log(gain.deviation[0])
        bank = of_bank.step(
            bank, Observed(observed, expected, surprise, at * WINDOW_S), filter_state, gain,
            sizes=np.array([SIZE]), keep=keep, pause_density=pause, most=1e9,
        )  # fmt: skip
    return filter_state, bank, likelihood


def gaussian(values: Floats, matrix: Floats) -> float:
    return -0.5 * float(values @ np.linalg.solve(matrix, values)) - 0.5 * float(np.linalg.slogdet(matrix)[1])


@given(seed=st.integers(0, 10_000), windows=st.integers(2, 40), wander=st.floats(0.0005, 0.01))
def test_innovations_give_the_joint_likelihood(seed: int, windows: int, wander: float) -> None:
    """The whitened innovations give the joint likelihood of all windows, also when some are missing."""
    rng = np.random.default_rng(seed)
    matrix = covariance(windows, wander)
    late = rng.multivariate_normal(np.zeros(windows), matrix)
    late = np.clip(late, -2.0 * SPREAD, 2.0 * SPREAD)
    lost = rng.random(windows) < 0.2
    observed = ~lost
    _, _, likelihood = through(np.where(lost, np.nan, late), wander)
    exact = gaussian(late[observed], matrix[np.ix_(observed, observed)])
    assert likelihood == pytest.approx(exact, abs=1e-3 * windows)


def test_evidence_is_the_ratio_of_joint_likelihoods() -> None:
    """The ratio covers all windows since the evidence was last zero, with baseline and wander integrated out."""
    late = np.concatenate([np.full(40, -0.001), np.full(30, SIZE)])
    _, bank, _ = through(late, 0.003)
    begun = round(float(bank.since_s[0, 0]) / WINDOW_S)
    assert begun == 40
    matrix = covariance(late.size, 0.003)
    shifted = late - SIZE * (np.arange(late.size) >= begun)
    exact = gaussian(shifted, matrix) - gaussian(late, matrix)
    assert float(bank.evidence[0, 0]) == pytest.approx(exact, rel=0.02)


def test_a_pause_gives_almost_no_evidence() -> None:
    late = np.zeros(60)
    late[50] = 0.5
    _, bank, _ = through(late, 0.003, pause=0.01)
    assert float(bank.evidence[0, 0]) < 0.1


def test_a_learnt_baseline_gives_no_further_evidence() -> None:
    """A node is late from the start.  In time the baseline absorbs this, and only a new slowdown starts a sum."""
    late = np.concatenate([np.full(700, SIZE), np.full(20, 2.0 * SIZE)])
    _, early, _ = through(late[:5], 0.003)
    assert float(early.since_s[0, 0]) == 0.0
    assert float(early.evidence[0, 0]) > 1.0
    _, bank, _ = through(late, 0.003)
    assert float(bank.since_s[0, 0]) == 700 * WINDOW_S
    assert float(bank.evidence[0, 0]) > 10.0


def job(seed: int, *, nodes: int = 1024, windows: int = 720, wander: float = 0.003, drift: float = 0.0,
        sticky: float = 0.0) -> Scales:  # fmt: skip
    """An hour of a job.  `sticky`: share of the jitter that is the same for a minute."""
    rng, found = np.random.default_rng(seed), noise_scales.start(nodes, StragglerSettings())
    keep, stays = exp(-WINDOW_S / 300.0), exp(-WINDOW_S / 30.0)
    usual, sway = SPREAD * rng.standard_normal(nodes), wander * rng.standard_normal(nodes)
    slow = rng.standard_normal(nodes)
    for _ in range(windows):
        sway = keep * sway + sqrt(1.0 - keep**2) * wander * rng.standard_normal(nodes)
        slow = stays * slow + sqrt(1.0 - stays**2) * rng.standard_normal(nodes)
        usual = usual + drift * sqrt(WINDOW_S / 3600.0) * rng.standard_normal(nodes)
        jitter = NOISE * (sqrt(1.0 - sticky) * rng.standard_normal(nodes) + sqrt(sticky) * slow)
        late = usual + sway + jitter
        found = noise_scales.by_window(found, late, StragglerSettings())
        found = noise_scales.by_block(found, late, np.ones(nodes, np.bool_), WINDOW_S, StragglerSettings())
    return found


@pytest.mark.parametrize("wander", [0.002, 0.003, 0.006])
def test_the_wander_is_estimated_from_the_job(wander: float) -> None:
    found = job(1, wander=wander)
    assert found.wander == pytest.approx(wander, rel=0.25)
    assert found.noise == pytest.approx(NOISE, rel=0.03)
    assert found.spread == pytest.approx(SPREAD, rel=0.25)
    assert 3600.0 * found.drift2 < 0.004**2


@pytest.mark.parametrize("seed", [2, 5])
def test_few_nodes_change_the_prior_by_at_most_a_factor_of_two(seed: int) -> None:
    found = job(seed, nodes=8)
    assert 0.5 <= found.wander / StragglerSettings().wander <= 2.0
    assert found.drift2 == 0.0


def test_drift_is_distinguished_from_wander() -> None:
    found = job(3, windows=1080, drift=0.01)
    assert sqrt(3600.0 * found.drift2) == pytest.approx(0.01, rel=0.35)
    assert found.wander == pytest.approx(0.003, rel=0.35)


def test_persistent_jitter_increases_the_noise_estimate() -> None:
    """Twelve such windows hold less information than twelve independent ones."""
    assert job(4, sticky=0.3).noise > 1.3 * job(4).noise


def test_a_block_with_too_few_observed_nodes_does_not_change_the_noise() -> None:
    found, rng = job(6, nodes=128, sticky=0.3), np.random.default_rng(7)
    before = found.rough
    observed = np.arange(128) < 80
    for _ in range(24):
        late = np.where(observed, NOISE * rng.standard_normal(128), np.nan)
        found = noise_scales.by_block(found, np.where(observed, late, 0.0), observed, WINDOW_S, StragglerSettings())
    assert before > 1.3 * NOISE
    assert found.rough == before
