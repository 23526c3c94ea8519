"""Jobs of thousands of ranks with all that goes wrong in one, to measure detectors by.  docs/faults/simulator.md

score = simulate(ranks=16_384, hours=1.0, scenario="mixed", seed=7, clock_s=time.process_time)
"""

from collections.abc import Callable

from faults.simulator.answer import Score, score
from faults.simulator.outcome import Outcome
from faults.simulator.scenario import SCENARIOS
from fleet.documents import RuleError

__all__ = ["SCENARIOS", "Score", "simulate"]

MAX_RANKS, MAX_HOURS = 131_072, 24 * 365


def simulate(*, ranks: int, hours: float, scenario: str, seed: int, clock_s: Callable[[], float]) -> Score:
    """Run a scenario before our detectors.  `clock_s` tells what they cost; nothing else depends on it."""
    from faults.simulator.judges import ours  # noqa: PLC0415
    from faults.simulator.run import WINDOW_S, jobs  # noqa: PLC0415 - loads compiled code

    RuleError.raise_for(_flaws(ranks, hours, scenario, seed))
    begun_s, total = clock_s(), Outcome()
    for outcome in jobs(SCENARIOS[scenario], ranks=ranks, hours=hours, seed=seed, panel=ours, clock_s=clock_s):
        total.add(outcome)
    return score(total, scenario=scenario, ranks=ranks, seed=seed, window_s=WINDOW_S, run_s=clock_s() - begun_s)


def _flaws(ranks: int, hours: float, scenario: str, seed: int) -> list[tuple[tuple[str | int, ...], str]]:
    flaws: list[tuple[tuple[str | int, ...], str]] = []
    if scenario not in SCENARIOS:
        flaws.append((("scenario",), f"expected one of {', '.join(SCENARIOS)}, got {scenario!r}"))
    if not 128 <= ranks <= MAX_RANKS or ranks % 64:
        flaws.append((("ranks",), f"expected a multiple of 64 from 128 to {MAX_RANKS:,}, got {ranks}"))
    if not 1 / 60 <= hours <= MAX_HOURS:
        flaws.append((("hours",), f"expected from a minute (0.0167) to a year ({MAX_HOURS:,}), got {hours:g}"))
    if seed < 0:
        flaws.append((("seed",), f"expected 0 or more, got {seed}"))
    return flaws
