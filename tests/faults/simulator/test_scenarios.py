"""Fault schedules against the mix, and whole small runs with detectors of known diagnoses."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from bench.c4_baseline import c4_detectors
from faults.diagnosis import Diagnosis, Direction, FaultClass, Scope
from faults.simulator import SCENARIOS, simulate
from faults.simulator.cluster import Cluster, Shape, build
from faults.simulator.detectors import Detectors, product_detectors
from faults.simulator.fault_mix import PUBLIC, FaultMix, drawn, nodes_of
from faults.simulator.fault_schedule import FAULTS, HANGS, FaultKind
from faults.simulator.run import job, jobs
from faults.simulator.scenario import ScenarioName
from fleet.documents import RuleError

CLUSTER = build(Shape(ranks=1024), seed=1)


def _no_clock() -> float:
    return 0.0


def test_faults_follow_the_public_mix() -> None:
    found = drawn(CLUSTER, FaultMix(congested=0.0), until_s=50 * 3600.0, rng=np.random.default_rng(1))
    count = Counter(one.kind for one in found if one.kind in FAULTS)
    total, weight = sum(count.values()), sum(PUBLIC.values())
    assert total > 1200
    for kind, share in PUBLIC.items():
        assert count[kind] / total == pytest.approx(share / weight, abs=4 * (share / weight / total) ** 0.5)
    assert sum(one.kind not in FAULTS for one in found) > 9.5 * total  # ten benign events for each
    assert found[0].from_s <= 1.0


def test_simultaneous_faults_share_no_node_and_none_stops_the_job() -> None:
    mix = replace(SCENARIOS["eight"].mix, negatives=0.0)
    found = drawn(CLUSTER, mix, until_s=5 * 3600.0, rng=np.random.default_rng(2))
    for begin in range(0, len(found), 8):
        eight = found[begin : begin + 8]
        touched = [nodes_of(CLUSTER, one) for one in eight]
        assert sum(map(len, touched)) == len(set().union(*touched))
        assert not {one.kind for one in eight} & HANGS
        assert max(one.from_s for one in eight) - eight[0].from_s <= 5.0


def test_a_schedule_is_the_same_for_the_same_seed() -> None:
    one, same = (drawn(CLUSTER, FaultMix(), until_s=3600.0, rng=np.random.default_rng(7)) for _ in range(2))
    assert one == same


@dataclass(frozen=True)
class _Scripted:
    """Gives fixed diagnoses from a given time."""

    diagnoses_at: Callable[[float], tuple[Diagnosis, ...]]

    def start(self) -> None: ...

    def step(self, state: None, window: Any) -> tuple[None, tuple[Diagnosis, ...]]:
        return state, self.diagnoses_at(window.to_s)


def test_a_repeated_false_diagnosis_counts_as_one_false_isolation() -> None:
    def diagnoses_at(now_s: float) -> tuple[Diagnosis, ...]:
        return (
            Diagnosis(
                fault=FaultClass.COMM_SLOW,
                scope=Scope.NODE,
                node=1,
                direction=Direction.BOTH,
                onset_s=0.0,
                detected_s=now_s,
                isolate=True,
                confidence=1.0,
                reason="because",
            ),
        )

    def detector_factory(cluster: Cluster) -> Detectors:
        del cluster
        return Detectors(slow=_Scripted(diagnoses_at))

    found = job(
        SCENARIOS["healthy"],
        ranks=128,
        until_s=300.0,
        seed=(1, 0),
        detector_factory=detector_factory,
        clock_s=_no_clock,
    )
    assert found.tally.false_isolations == 1
    assert len(found.spent_s) == 60


def test_the_c4_rule_isolates_the_nodes_of_a_slow_leaf() -> None:
    quiet = replace(SCENARIOS["leaf"], background_h=0.0)
    mix = replace(quiet.mix, factors=(2.0,), factor_shares=(1.0,), negatives=0.0)
    outcomes = jobs(
        replace(quiet, mix=mix), ranks=1024, hours=0.05, seed=3, detector_factory=c4_detectors, clock_s=_no_clock
    )
    assert sum(outcome.tally.false_isolations for outcome in outcomes) >= 20


def test_hangs_are_diagnosed_and_no_other_node_is_isolated() -> None:
    tally = next(
        jobs(SCENARIOS["hangs"], ranks=256, hours=0.15, seed=4, detector_factory=product_detectors, clock_s=_no_clock)
    ).tally
    assert sum(tally.eligible.values()) >= 3
    assert tally.named == tally.eligible
    assert (tally.wrong, tally.false_isolations) == (0, 0)


def test_a_run_is_repeatable() -> None:
    one, same = (
        simulate(ranks=256, hours=0.03, scenario="mixed", seed=11, clock_s=_no_clock).model_dump() for _ in range(2)
    )
    assert one == same


@pytest.mark.parametrize("name", sorted(set(SCENARIOS) - {"mixed"}))
def test_every_scenario_runs(name: str) -> None:
    ranks = 512 if name == "experts" else 256
    found = simulate(ranks=ranks, hours=1 / 60, scenario=name, seed=2, clock_s=_no_clock)
    assert found.hours == pytest.approx(1 / 60)
    assert found.diagnoses >= found.false_isolations


def test_every_scenario_has_a_selectable_name() -> None:
    assert {name.value for name in ScenarioName} == set(SCENARIOS)


@pytest.mark.parametrize(
    ("field", "given"),
    [("ranks", {"ranks": 1000}), ("hours", {"hours": 0.0}), ("scenario", {"scenario": "calm"}), ("seed", {"seed": -1})],
)
def test_an_impossible_simulation_is_refused(field: str, given: dict[str, Any]) -> None:
    request: dict[str, Any] = {"ranks": 1024, "hours": 1.0, "scenario": "mixed", "seed": 1, **given}
    with pytest.raises(RuleError, match=field):
        simulate(clock_s=_no_clock, **request)


def test_a_negative_never_counts_as_a_fault() -> None:
    assert not FAULTS & {
        FaultKind.PAUSE,
        FaultKind.CHECKPOINT,
        FaultKind.FOREIGN,
        FaultKind.IMBALANCE,
        FaultKind.HICCUP,
        FaultKind.SILENCE,
    }
