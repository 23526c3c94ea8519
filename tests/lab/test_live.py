"""Tests that the live detector names injected faults of real ranks while they run."""

from pathlib import Path

import pytest

from faults.diagnosis import Scope
from faults.monitor import FaultMonitor
from tests.testbed.lab.experiment import Experiment
from tests.testbed.lab.injections import Injection
from tests.testbed.lab.judging import expected_of, judge
from tests.testbed.lab.session import run_experiment
from tests.testbed.lab.watching import LiveWatch
from tests.testbed.lab.workload import LibraryName, Workload

pytestmark = pytest.mark.lab

AT_S = 6.1
HANG_S = 3.0  # the documented bounds; the benchmark measures the actual times
SLOW_S = 5.0
CRASH_S = 1.0

FAULTS = [
    (Injection(kind="stop", at_s=AT_S, node=2), HANG_S),
    (Injection(kind="pair_cut", at_s=AT_S, node=3, peer=2), HANG_S),
    (Injection(kind="tx", at_s=AT_S, node=1, rate_mbit=60.0), SLOW_S),
    (Injection(kind="kill", at_s=AT_S, node=4), CRASH_S),
]


@pytest.mark.parametrize(("injection", "within_s"), FAULTS, ids=lambda value: getattr(value, "kind", None))
def test_a_fault_is_diagnosed_during_the_run_without_wrong_isolations(
    injection: Injection, within_s: float, tmp_path: Path, library: LibraryName, torch_python: Path | None
) -> None:
    load = workload(library, duration_s=AT_S + within_s + 0.5)
    experiment = Experiment(name=injection.kind, workload=load, injections=(injection,))
    watch = LiveWatch(FaultMonitor)
    ran = run_experiment(experiment, folder=tmp_path / "run", watch=watch, python=torch_python)
    outcome = judge(expected_of(experiment), watch.diagnoses, began_s=ran.done_s[injection])
    assert outcome.class_right, watch.diagnoses
    assert outcome.place_right, watch.diagnoses
    assert outcome.wrong_isolations == 0, watch.diagnoses
    assert outcome.detect_s is not None
    assert outcome.detect_s <= within_s


def test_cross_traffic_gives_only_workload_diagnoses(
    tmp_path: Path, library: LibraryName, torch_python: Path | None
) -> None:
    flood = Injection(kind="flood", at_s=4.0, node=1, peer=4, seconds=3.0)
    experiment = Experiment(name="flood", workload=workload(library, duration_s=9.0), injections=(flood,))
    watch = LiveWatch(FaultMonitor)
    run_experiment(experiment, folder=tmp_path / "run", watch=watch, python=torch_python)
    assert [stamped for stamped in watch.diagnoses if stamped.diagnosis.scope is not Scope.WORKLOAD] == []


def workload(library: LibraryName, *, duration_s: float) -> Workload:
    return Workload(ranks=6, duration_s=duration_s, library=library, seed=11)
