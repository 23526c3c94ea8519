"""Stragglers are found soon, and uneven data, a slow job or a short history give no diagnosis."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from faults.diagnosis import Diagnosis, FaultClass, Scope
from faults.fabric import Floats
from faults.stragglers import Roles, Stragglers, StragglerSettings
from faults.stragglers.cusum import outlasts_hiccup

STAGES, REPLICAS, WINDOW_S, JITTER = 8, 32, 10.0, 0.01
NODES = STAGES * REPLICAS
ROLES = Roles(np.arange(NODES) // REPLICAS, np.arange(NODES) % REPLICAS)
HOUR = 240  # windows: 40 minutes of history


class Days:
    """Gaps of a job: stages differ, nodes differ a little, all share the sequence lengths."""

    def __init__(self, seed: int, *, jitter: float = JITTER) -> None:
        self.rng, self.jitter = np.random.default_rng(seed), jitter
        self.usual = 0.1 * np.isin(ROLES.stage, (0, STAGES - 1)) + 0.01 * self.rng.standard_normal(NODES)

    def gaps(self, late: Floats | float = 0.0) -> Floats:
        noise = self.jitter * self.rng.standard_normal(NODES) + 0.05 * self.rng.standard_normal()
        pause = np.where(self.rng.random(NODES) < 0.005, self.rng.exponential(0.15, NODES), 0.0)
        return np.asarray(0.8 * np.exp(self.usual + late + noise + pause))


def run(
    late: Floats | float, *, before: int, during: int, seed: int = 1, settings: StragglerSettings | None = None,
    lost: float = 0.0, jitter: float = JITTER,
) -> dict[int, Diagnosis]:  # fmt: skip
    """The first diagnosis of each node."""
    days, detector = Days(seed, jitter=jitter), Stragglers(ROLES, settings)
    state = detector.start()
    found: dict[int, Diagnosis] = {}
    for at in range(before + during):
        gaps = days.gaps(late if at >= before else 0.0)
        gaps[days.rng.random(NODES) < lost] = np.nan
        state, diagnoses = detector.step(state, gaps, WINDOW_S * (at + 1), window_s=WINDOW_S)
        for one in diagnoses:
            found.setdefault(one.node if one.node is not None else -1, one)
    return found


def of(node: int, share: float) -> Floats:
    return np.asarray(np.where(np.arange(NODES) == node, np.log1p(share), 0.0))


@pytest.mark.parametrize("node", [0, 77, 255])
def test_three_percent_is_found_within_four_minutes(node: int) -> None:
    found = run(of(node, 0.03), before=HOUR, during=24)
    assert list(found) == [node]
    one = found[node]
    assert (one.fault, one.scope, one.isolate) == (FaultClass.NONCOMM_SLOW, Scope.NODE, False)
    assert 10.0 * HOUR - 30.0 <= one.onset_s < one.detected_s <= 10.0 * HOUR + 240.0


def test_a_straggler_that_costs_the_job_five_percent_may_be_isolated() -> None:
    found = run(of(77, 0.08), before=HOUR, during=24)
    assert [(node, one.isolate) for node, one in found.items()] == [(77, True)]


def test_ten_percent_is_found_from_the_first_second() -> None:
    """The comparison with its peers suffices."""
    assert list(run(of(9, 0.10), before=0, during=24)) == [9]


def test_healthy_hours_have_no_straggler() -> None:
    """The jitter is three times as large, since the detector must not rely on small jitter."""
    assert not run(0.0, before=700, during=0, jitter=0.03)


def test_a_replica_with_more_data_gives_no_straggler() -> None:
    late = np.where(ROLES.replica == 5, np.log1p(0.10), 0.0)
    assert not run(late, before=HOUR, during=60)


def test_the_last_observed_nodes_of_a_stage_are_not_compared_with_other_stages() -> None:
    """The first stage takes 10 % longer than the middle ones, and all but two of its agents fall silent."""
    days, detector = Days(11), Stragglers(ROLES)
    state = detector.start()
    for at in range(HOUR + 40):
        gaps = days.gaps()
        if at >= HOUR:
            gaps[2:REPLICAS] = np.nan
        state, diagnoses = detector.step(state, gaps, WINDOW_S * (at + 1))
        assert not diagnoses


@pytest.mark.parametrize("seed", range(4))
def test_stages_of_two_nodes_are_not_compared_with_other_stages(seed: int) -> None:
    """The first stage takes 10 % longer than the middle ones, and only its own history gives its baseline."""
    stage, rng = np.arange(16) // 2, np.random.default_rng(seed)
    detector = Stragglers(Roles(stage, np.arange(16) % 2))
    state = detector.start()
    usual = 0.1 * np.isin(stage, (0, 7)) + 0.01 * rng.standard_normal(16)
    for at in range(200):
        gaps = 0.8 * np.exp(usual + 0.02 * rng.standard_normal(16))
        state, diagnoses = detector.step(state, gaps, 5.0 * (at + 1))
        assert not diagnoses


def test_more_data_in_half_of_the_replicas_gives_no_straggler() -> None:
    """The median of a stage then lies anywhere between both halves, and the stages must not differ by this."""
    more = np.where(np.arange(REPLICAS) % 2 == 0, np.log1p(np.linspace(0.05, 0.3, REPLICAS)), 0.0)
    assert not run(more[ROLES.replica], before=HOUR, during=60)


def test_a_slower_stage_gives_no_straggler() -> None:
    late = np.where(ROLES.stage == 3, np.log1p(0.20), 0.0)
    assert not run(late, before=HOUR, during=60)


def test_a_slower_job_gives_no_straggler() -> None:
    assert not run(0.3, before=HOUR, during=60)


def test_a_straggler_in_a_slow_replica_is_still_found() -> None:
    late = np.where(ROLES.replica == 5, np.log1p(0.05), 0.0) + of(5 + 2 * REPLICAS, 0.10)
    assert list(run(late, before=HOUR, during=40)) == [5 + 2 * REPLICAS]


def test_a_straggler_is_found_although_agents_are_lost() -> None:
    assert list(run(of(77, 0.05), before=HOUR, during=40, lost=0.3)) == [77]


def test_without_roles_eight_nodes_are_each_others_peers() -> None:
    rng, detector = np.random.default_rng(3), Stragglers(8)
    state = detector.start()
    named: set[int | None] = set()
    for at in range(240):
        gaps = 0.03 * np.exp(0.03 * rng.standard_normal(8) + 0.4 * (np.arange(8) == 2) * (at >= 120))
        state, diagnoses = detector.step(state, gaps, 2.5 * (at + 1))
        named |= {one.node for one in diagnoses}
        assert at >= 120 or not named
    assert named == {2}


def test_a_node_that_recovers_is_no_longer_reported() -> None:
    days, detector = Days(4), Stragglers(ROLES)
    state = detector.start()
    diagnoses: tuple[Diagnosis, ...] = ()
    for at in range(HOUR + 150):
        gaps = days.gaps(of(77, 0.10) if HOUR <= at < HOUR + 30 else 0.0)
        state, diagnoses = detector.step(state, gaps, WINDOW_S * (at + 1), window_s=WINDOW_S)
        if at == HOUR + 29:
            assert [one.node for one in diagnoses] == [77]
    assert not diagnoses


@pytest.mark.parametrize("invalid", [np.nan, 0.0, -1.0, np.inf])
def test_invalid_gaps_are_ignored(invalid: float) -> None:
    days, detector = Days(5), Stragglers(ROLES)
    state = detector.start()
    for at in range(30):
        gaps = days.gaps()
        gaps[3] = invalid
        state, diagnoses = detector.step(state, gaps, WINDOW_S * (at + 1), window_s=WINDOW_S)
        assert not diagnoses


def test_fewer_false_alarms_require_more_evidence() -> None:
    bars = [StragglerSettings(false_per_day=rate).bars(2048, WINDOW_S)[0] for rate in (10.0, 1.0, 0.1)]
    assert bars == sorted(bars)
    assert bars[0] < bars[-1]


@pytest.mark.parametrize("drift", [0.6, 1.7, 3.0])
def test_a_bar_keeps_its_configured_false_alarm_rate(drift: float) -> None:
    """Sums of likelihood ratios on normal noise at a high configured rate, which the worst drift nearly reaches."""
    rng, nodes, windows = np.random.default_rng(6), 4000, 2000
    settings = StragglerSettings(false_per_day=2000.0)
    bar = settings.bars(nodes, WINDOW_S)[0]
    wanted = settings.patience * settings.false_per_day * windows * WINDOW_S / 86_400.0
    height, alarms = np.zeros(nodes), 0
    for _ in range(windows):
        height = np.maximum(height + drift * rng.standard_normal(nodes) - drift**2 / 2.0, 0.0)
        alarms += int((height >= bar).sum())
        height[height >= bar] = 0.0
    assert alarms <= 1.15 * wanted
    assert alarms >= (0.7 if drift == 1.7 else 0.1) * wanted


@pytest.mark.parametrize("window_s", [5.0, 10.0])
def test_a_large_slowdown_is_named_as_soon_as_it_outlasts_a_hiccup(window_s: float) -> None:
    settings = StragglerSettings()
    days, detector = Days(7), Stragglers(ROLES, settings)
    state = detector.start()
    took: list[int] = []
    for at in range(HOUR + 12):
        state, diagnoses = detector.step(state, days.gaps(of(40, 0.25) if at >= HOUR else 0.0), window_s * (at + 1))
        took += [at - HOUR + 1 for one in diagnoses if one.node == 40]
    least = int(np.ceil(settings.hiccup_s / window_s)) + 1
    assert took
    assert took[0] <= max(least, 4)


def test_a_hiccup_gives_no_straggler() -> None:
    """A hiccup of any size ends before its run of large windows is long enough for a fault."""
    hiccup_windows = int(StragglerSettings().hiccup_s // WINDOW_S) + 1
    days, detector = Days(8), Stragglers(ROLES)
    state = detector.start()
    for at in range(HOUR + 60):
        late = of(40, 1.0) if HOUR <= at < HOUR + hiccup_windows else 0.0
        state, diagnoses = detector.step(state, days.gaps(late), WINDOW_S * (at + 1))
        assert not diagnoses


@pytest.mark.parametrize("observed_before", [0, 1, 40])
def test_silence_does_not_change_the_baseline(observed_before: int) -> None:
    """The job stalls for a minute, at its start or later, and keeps the baseline from before."""
    days, detector = Days(10), Stragglers(ROLES)
    state = detector.start()
    for at in range(observed_before + 66):
        silent = observed_before <= at < observed_before + 6
        gaps = np.full(NODES, np.nan) if silent else days.gaps()
        state, diagnoses = detector.step(state, gaps, WINDOW_S * (at + 1))
        assert not diagnoses


def test_a_late_node_of_an_unobserved_replica_is_not_named() -> None:
    """Seven of its eight agents are lost, so uneven data remains a possible cause."""
    late = np.where(ROLES.replica == 5, np.log1p(0.25), 0.0)
    silent = (ROLES.replica == 5) & (np.arange(NODES) >= REPLICAS)
    days, detector = Days(9), Stragglers(ROLES)
    state = detector.start()
    for at in range(HOUR + 30):
        gaps = days.gaps(late if at >= HOUR else 0.0)
        gaps[silent] = np.nan
        state, diagnoses = detector.step(state, gaps, WINDOW_S * (at + 1))
        assert not diagnoses


@given(share=st.floats(1e-6, 0.4), nodes=st.integers(2, 20_000), window_s=st.floats(1.0, 60.0))
def test_the_run_length_keeps_the_false_alarm_rate(share: float, nodes: int, window_s: float) -> None:
    settings = StragglerSettings()
    run_length = settings.run(share, nodes, window_s)
    assert -run_length * np.log(share) >= settings.bars(nodes, window_s)[-1] * (1 - 1e-9)
    assert settings.run(min(2 * share, 0.5), nodes, window_s) >= run_length


@given(
    share=st.floats(1e-6, 0.4),
    nodes=st.integers(2, 20_000),
    window_s=st.floats(1.0, 60.0),
    resumed=st.floats(1e-4, 1.0),
)
def test_a_run_across_a_stall_accounts_for_the_rate_of_stalls(
    share: float, nodes: int, window_s: float, resumed: float
) -> None:
    settings = StragglerSettings()
    bar, usual = settings.bars(nodes, window_s)[-1], settings.run(share, nodes, window_s)
    across = settings.run(share, nodes, window_s, resumed_share=resumed)
    assert 2 <= across <= max(usual, 2)
    assert across == usual or -across * np.log(share) >= bar + np.log((across - 1) * resumed) - 1e-9
    assert settings.run(share, nodes, window_s, resumed_share=min(1.0, 2 * resumed)) >= across


@pytest.mark.parametrize("stall_s", [0.0, 5.0, 20.0])
def test_a_stall_within_a_large_slowdown_counts_toward_its_duration(stall_s: float) -> None:
    window_s, node = 5.0, 77
    days, detector = Days(4), Stragglers(ROLES)
    state, reports = detector.start(), list[bool]()
    late = [*[0.0] * HOUR, 0.06, 0.25, *[None] * round(stall_s / window_s), 0.25]
    for at, share in enumerate(late):
        gaps = np.full(NODES, np.nan) if share is None else days.gaps(of(node, share))
        state, diagnoses = detector.step(state, gaps, window_s * (at + 1), window_s=window_s)
        reports.append([one.node for one in diagnoses] == [node])
    assert not any(reports[:-1])
    assert reports[-1] == (stall_s >= 5.0)


def alone(*late: float, share: float = 1e-3, noise: float = 0.02, window_s: float = 5.0) -> bool:
    """Whether these large windows of one node, oldest first, are similar enough to be a fault."""
    settings, run = StragglerSettings(), np.array([float(len(late))])
    recent_lateness = [np.array([one]) for one in reversed(late)]
    bar = settings.bars(2048, window_s)[-1]
    return bool(
        outlasts_hiccup(recent_lateness, run, settings, noise=noise, large_share=share, bar=bar, window_s=window_s)[0]
    )


@given(begun=st.floats(0.01, 1.0), ended=st.floats(0.01, 1.0), factor=st.floats(1.02, 8.0), noise=st.floats(1e-4, 0.1))
def test_a_hiccup_over_three_windows_is_no_fault(begun: float, ended: float, factor: float, noise: float) -> None:
    hiccup_windows = StragglerSettings().hiccup_s / 5.0 - 1.0  # besides the middle window
    scale = min(1.0, hiccup_windows / (begun + ended))
    late = [float(np.log1p(share * (factor - 1.0))) for share in (scale * begun, 1.0, scale * ended)]
    assert not alone(*late, share=1e-6, noise=noise)


@given(begun=st.floats(0.6, 1.0), factor=st.floats(1.25, 8.0))
def test_a_longer_slowdown_is_a_fault_at_its_third_window(begun: float, factor: float) -> None:
    late = float(np.log(factor))
    assert alone(float(np.log1p(begun * (factor - 1.0))), late, late)
    assert not alone(late, late)
    assert not alone(float(np.log1p(begun * (factor - 1.0))), late, late, window_s=3.0)


def test_three_large_windows_are_a_fault_only_if_similar_and_rare() -> None:
    assert alone(0.25, 0.25, 0.25)
    assert not alone(0.25, 0.35, 0.25)
    assert not alone(0.25, 0.25, 0.25, share=3e-3)
    assert not alone(0.25, 0.25, float("nan"))


def test_a_slowdown_is_named_at_its_third_window_when_the_windows_are_similar() -> None:
    window_s, node = 5.0, 77
    days, detector = Days(4), Stragglers(ROLES)
    state, reports = detector.start(), list[bool]()
    for at in range(HOUR + 3):
        late = of(node, 0.25) if at >= HOUR else 0.0
        state, diagnoses = detector.step(state, days.gaps(late), window_s * (at + 1), window_s=window_s)
        reports.append([one.node for one in diagnoses] == [node])
    assert reports[-3:] == [False, False, True]


@pytest.mark.parametrize("fourth", [None, 0.0, 0.25])
def test_a_node_that_falls_silent_after_three_pauses_is_not_slow(fourth: float | None) -> None:
    """Three differing windows may be pauses.  A fourth large window is significant, and silence is not."""
    window_s, node = 5.0, 77
    days, detector = Days(4), Stragglers(ROLES)
    state, reported = detector.start(), False
    for share in [*[0.0] * HOUR, 0.08, 0.2, 0.5, *[fourth] * 4]:
        gaps = days.gaps(of(node, share or 0.0))
        gaps[node] = np.nan if share is None else gaps[node]
        state, diagnoses = detector.step(state, gaps, (state.now_s or 0.0) + window_s, window_s=window_s)
        reported = reported or any(one.node == node for one in diagnoses)
    assert reported == (fourth == 0.25)
