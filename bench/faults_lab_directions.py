"""How often sender, receiver and link faults are told apart over real TCP, in the lab, with one-way probes.

Every kind of fault at four strengths, so many times each, at victims drawn from a seed; several in one run, each for
`FAULT_S` with a rest behind it, while the live detector looks on.  The job passes nothing from rank to rank.  A case is
right when the first verdict about hardware that comes out in its time has class, place and direction.  Harm is the
median step during the fault over the median before it; where steps are not at least `MIN_HARM` times as long, nothing
need be said.  As it is, and with busy processes beside.  Needs root.

    python -m bench faults_lab_directions
        FLEETWRIGHT_LAB_SEED=N draws others, FLEETWRIGHT_LAB_PYTHON=FILE has torch, FLEETWRIGHT_LAB_ROUNDS=N of 12 cases
"""

import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import median, quantiles
from typing import Any, Final

from api.cli.faults.recordings import open_recording
from faults.diagnosis import Direction, FaultClass, Scope
from faults.observations import Collective
from faults.simulator.intervals import wilson
from faults.slow import SlowDetector
from tests.testbed.lab import network
from tests.testbed.lab.experiment import Experiment
from tests.testbed.lab.injections import Injection, Kind
from tests.testbed.lab.judging import DIRECTION_OF
from tests.testbed.lab.session import run_experiment
from tests.testbed.lab.watching import LiveWatch, Stamped
from tests.testbed.lab.workload import Workload
from tests.testbed.requirements import UnavailableError

RANKS, RATE_MBIT, BUSY = 8, 200.0, 4
STRENGTHS: Final = (1.25, 1.5, 2.0, 3.3)
KINDS: Final[tuple[Kind, ...]] = ("tx", "rx", "link")
FIRST_S, FAULT_S, REST_S = 12.1, 6.5, 6.5  # a verdict is over 5 s after its last evidence
A_RUN: Final = 6  # faults
ROUNDS: Final = 5  # of all kinds and strengths, quiet; and as many loaded
MIN_HARM: Final = 1.08
USUAL_SEED: Final = 8123


@dataclass(frozen=True, slots=True)
class Case:
    """One fault, and what came of it."""

    kind: Kind
    harm: float | None
    right: bool
    detect_s: float | None
    wrong_isolations: int


def run() -> list[dict[str, Any]]:
    """As it is and loaded; of all cases, and of each kind."""
    try:
        network.check_allowed()
    except UnavailableError as unavailable:
        return [{"what": f"left out: {unavailable}"}]
    rows = []
    for busy in (0, BUSY):
        cases = [case for experiment in experiments(busy) for case in cases_of(experiment)]
        kinds = [(kind, [case for case in cases if case.kind == kind]) for kind in KINDS]
        rows += [row_of(busy, what, some) for what, some in (("all", cases), *kinds)]
    return rows


def experiments(busy: int) -> Iterator[Experiment]:
    """Runs of `A_RUN` faults, no node twice."""
    seed = int(os.environ.get("FLEETWRIGHT_LAB_SEED", USUAL_SEED)) + busy
    rounds = int(os.environ.get("FLEETWRIGHT_LAB_ROUNDS", ROUNDS))
    rng = Random(seed)
    cases = [(kind, times) for times in STRENGTHS for kind in KINDS] * rounds
    rng.shuffle(cases)
    for at in range(0, len(cases), A_RUN):
        some = cases[at : at + A_RUN]
        faults = [
            injection
            for number, ((kind, times), node) in enumerate(zip(some, rng.sample(range(RANKS), len(some)), strict=True))
            for injection in fault(kind, times, node, FIRST_S + number * (FAULT_S + REST_S))
        ]
        workload = Workload(
            ranks=RANKS,
            duration_s=FIRST_S + len(some) * (FAULT_S + REST_S),
            library="gloo" if "FLEETWRIGHT_LAB_PYTHON" in os.environ else "own",
            compute_ms=20.0,
            all_reduce_bytes=2 << 20,
            pass_bytes=0,
            seed=seed + at,
        )
        yield Experiment(name=f"directions {at}", workload=workload, injections=tuple(faults), busy=busy)


def fault(kind: Kind, times: float, node: int, at_s: float) -> tuple[Injection, Injection]:
    """Its beginning and its end."""
    peer = (node - 1) % RANKS if kind == "link" else None  # whom the all-reduce sends to
    return (
        Injection(kind=kind, at_s=at_s, node=node, peer=peer, rate_mbit=RATE_MBIT / times),
        Injection(kind=kind, at_s=at_s + FAULT_S, node=node, peer=peer, rate_mbit=RATE_MBIT),
    )


def cases_of(experiment: Experiment) -> list[Case]:
    """Run it; each fault with what was said in its time."""
    named = os.environ.get("FLEETWRIGHT_LAB_PYTHON")
    watch = LiveWatch(SlowDetector)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "run"
        ran = run_experiment(experiment, folder=folder, watch=watch, python=Path(named) if named else None)
        arrived_s = [
            seen.values.arrived_s
            for seen in open_recording(folder).observations
            if isinstance(seen.values, Collective) and seen.values.op == "all_reduce" and seen.rank == 0
        ]
    steps = [(start_s, end_s - start_s) for start_s, end_s in pairwise(arrived_s)]
    begun = [(what, ran.done_s[what]) for what in experiment.injections[::2]]
    return [case_of(what, at_s, steps, watch.diagnoses) for what, at_s in begun]


def case_of(what: Injection, at_s: float, steps: Sequence[tuple[float, float]], said: Sequence[Stamped]) -> Case:
    """What was first said of hardware from its beginning until its evidence has left."""
    mine = [
        stamped
        for stamped in said
        if at_s < stamped.said_s < at_s + FAULT_S + REST_S / 2 and stamped.diagnosis.scope is not Scope.WORKLOAD
    ]
    before = [length_s for start_s, length_s in steps if at_s - REST_S + 1.0 < start_s < at_s - 0.3]
    during = [length_s for start_s, length_s in steps if at_s + 0.3 < start_s < at_s + FAULT_S]
    right = bool(mine) and _is(what, mine[0])
    return Case(
        kind=what.kind,
        harm=median(during) / median(before) if before and during else None,
        right=right,
        detect_s=mine[0].said_s - at_s if right else None,
        wrong_isolations=sum(one.diagnosis.isolate and not _is(what, one) for one in mine),
    )


def _is(what: Injection, said: Stamped) -> bool:
    diagnosis = said.diagnosis
    place = diagnosis.scope is (Scope.NODE if what.peer is None else Scope.LINK)
    way: Direction | None = DIRECTION_OF.get(what.kind)
    told = (diagnosis.fault, diagnosis.node, diagnosis.peer, diagnosis.direction)
    return place and told == (FaultClass.COMM_SLOW, what.node, what.peer, way)


def row_of(busy: int, what: str, cases: Sequence[Case]) -> dict[str, Any]:
    """Shares of the cases whose harm can be measured."""
    harmful = [case for case in cases if case.harm is not None and case.harm >= MIN_HARM]
    right = sum(case.right for case in harmful)
    low, high = wilson(right, len(harmful)) or (0.0, 1.0)
    taken_s = sorted(case.detect_s for case in harmful if case.detect_s is not None)
    return {
        "machine": f"{busy} busy beside" if busy else "as it is",
        "what": what,
        "cases": len(cases),
        "with_harm": len(harmful),
        "right": right,
        "right_share_low_95": low,
        "right_share_high_95": high,
        "right_of_all_cases": sum(case.right for case in cases),
        "detect_median_s": median(taken_s) if taken_s else None,
        "detect_p95_s": quantiles(taken_s, n=20, method="inclusive")[-1] if len(taken_s) > 1 else None,
        "wrong_isolations": sum(case.wrong_isolations for case in cases),
        "load_average": os.getloadavg()[1],
    }
