"""Simulates jobs of thousands of ranks with known faults, to measure the detectors.

    score = simulate(ranks=16_384, hours=1.0, scenario="mixed", seed=7, clock_s=time.process_time)

The command `faults simulate`, the API and the benchmarks call `simulate`.  docs/explanation/faults/simulator.md
"""

from collections.abc import Callable

from faults.simulator.result import Score, score
from faults.simulator.scenario import SCENARIOS
from faults.simulator.score import Outcome
from fleet.documents import RuleError, Violation
from fleet.errors import nearest_names

__all__ = ["SCENARIOS", "Score", "simulate"]

UNIT = 64  # ranks of one replica: 8 stages of 8
MIN_RANKS, MAX_RANKS, MAX_HOURS = 2 * UNIT, 131_072, 24 * 365


def simulate(*, ranks: int, hours: float, scenario: str, seed: int, clock_s: Callable[[], float]) -> Score:
    """Run a scenario with the product's detectors.  `clock_s` measures their cost; nothing else depends on it."""
    from faults.simulator.detectors import product_detectors  # noqa: PLC0415
    from faults.simulator.run import WINDOW_S, jobs  # noqa: PLC0415 - loads compiled code

    RuleError.raise_for(_violations(ranks, hours, scenario, seed))
    begun_s, total = clock_s(), Outcome()
    for outcome in jobs(
        SCENARIOS[scenario], ranks=ranks, hours=hours, seed=seed, detector_factory=product_detectors, clock_s=clock_s
    ):
        total.add(outcome)
    return score(total, scenario=scenario, ranks=ranks, seed=seed, window_s=WINDOW_S, run_s=clock_s() - begun_s)


def _violations(ranks: int, hours: float, scenario: str, seed: int) -> list[Violation]:
    violations: list[Violation] = []
    if scenario not in SCENARIOS:
        nearest = ", ".join(nearest_names(scenario, SCENARIOS)) or ", ".join(SCENARIOS)
        violations.append((("scenario",), f"unknown scenario {scenario!r}; nearest: {nearest}"))
    if not MIN_RANKS <= ranks <= MAX_RANKS or ranks % UNIT:
        violations.append((("ranks",), _unfit(ranks)))
    elif experts := SCENARIOS[scenario].experts if scenario in SCENARIOS else 0:
        violations += _violations_of_experts(ranks, experts)
    if not 1 / 60 <= hours <= MAX_HOURS:
        violations.append((("hours",), f"expected from a minute (0.0167) to a year ({MAX_HOURS:,}), got {hours:g}"))
    if seed < 0:
        violations.append((("seed",), f"expected 0 or more, got {seed}"))
    return violations


def _unfit(ranks: int) -> str:
    message = f"expected a multiple of {UNIT} from {MIN_RANKS} to {MAX_RANKS:,}, got {ranks}"
    low = ranks // UNIT * UNIT
    return f"{message}; nearest: {low:,} or {low + UNIT:,}" if MIN_RANKS < ranks < MAX_RANKS else message


def _violations_of_experts(ranks: int, experts: int) -> list[Violation]:
    """Check that the replicas of a stage divide into groups of this size."""
    if ranks % (UNIT * experts) == 0:
        return []
    return [(("ranks",), f"expected a multiple of {UNIT * experts} with groups of {experts} experts, got {ranks:,}")]
