"""Small rows for tests: a model of round numbers, work drawn by hypothesis, policies that follow a script."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
from hypothesis import strategies as st

from power.controls import UNTOUCHED, Clocks, Priority, Routing, Setting
from power.policies.thresholds import Untouched
from power.server_model import Draw, ServerModel
from power.simulator import Outcome, RowSpec, simulate
from power.telemetry import RowObservation
from power.workload import TrainingJob, Work
from power.workload.workload import Pool

SMALL = ServerModel(
    name="small",
    gpus=2,
    gpu_idle_w=50.0,
    prompt=Draw(floor_w=60.0, rise_w=340.0, exponent=1.3),
    token=Draw(floor_w=130.0, rise_w=110.0, exponent=1.5),
    token_batch_exponent=0.2,
    base_w=500.0,
    beside=1.2,
    parked_w=40.0,
    wake_s=15.0,
    prompt_s=(0.3, 1e-3, 1e-7),
    token_s=0.05,
    token_batch_growth=0.05,
    most_together=3,
    full_clock_mhz=1000.0,
    brake_clock=0.2,
)


def uncapped(spec: RowSpec, work: Work, *, seed: int = 0) -> Outcome:
    """The row at full clocks with a budget that nothing reaches."""
    return simulate(spec.model_copy(update={"budget_w": 1e9}), work, policy=Untouched(), bare=True, seed=seed)


def work_of(
    requests: Sequence[tuple[float, int, int, int]],
    *,
    pools: Sequence[tuple[Priority, int]] = ((Priority.LOW, 2), (Priority.HIGH, 2)),
    duration_s: float = 120.0,
    jobs: Sequence[TrainingJob] = (),
) -> Work:
    """Requests as (arrival, pool, prompt, output)."""
    columns = np.array(sorted(requests), dtype=np.float64).reshape(-1, 4)
    pool, prompt, output = columns[:, 1:].astype(np.int64).T
    return Work(
        duration_s=duration_s,
        pools=tuple(
            Pool(name=f"pool-{at}", priority=priority, servers=servers) for at, (priority, servers) in enumerate(pools)
        ),
        arrival_s=columns[:, 0].copy(),
        pool=pool.copy(),
        prompt_tokens=prompt.copy(),
        output_tokens=output.copy(),
        jobs=tuple(jobs),
    )


@dataclass(frozen=True)
class Scripted:
    """Settings that apply from given times on."""

    steps: tuple[tuple[float, Setting], ...] = ()
    command_delay_s: float = 0.0
    name: str = "scripted"

    def at(self, now_s: float) -> Setting:
        """The setting in force at a time."""
        return next((setting for at_s, setting in reversed(self.steps) if at_s <= now_s), UNTOUCHED)

    def start(self) -> None:
        """The policy has no state."""

    def decide(self, state: None, observed: RowObservation) -> tuple[None, Setting]:  # noqa: ARG002 - the interface
        """The setting of the script at this time."""
        return None, self.at(observed.now_s)

    def calm_below_w(self, state: None, budget_w: float) -> float:  # noqa: ARG002 - the interface
        """A script depends on time and is never calm; an empty script is always calm."""
        return -inf if self.steps else inf


def works(duration_s: float = 60.0) -> st.SearchStrategy[Work]:
    """Up to three pools, forty requests and two jobs."""
    pool = st.tuples(st.sampled_from(Priority), st.integers(1, 3))
    job = st.builds(
        TrainingJob,
        name=st.just("job"),
        servers=st.integers(1, 2),
        iteration_s=st.floats(1.0, 7.0),
        compute_share=st.floats(0.2, 0.9),
        compute_w=st.just(1500.0),
        trough_w=st.just(700.0),
        start_s=st.floats(0.0, 20.0),
    )

    def filled(pools: list[tuple[Priority, int]]) -> st.SearchStrategy[Work]:
        request = st.tuples(
            st.floats(0, duration_s - 1).map(lambda at: round(at, 6)),
            st.integers(0, len(pools) - 1),
            st.integers(1, 4000),
            st.integers(1, 400),
        )
        return st.builds(
            work_of,
            st.lists(request, min_size=1, max_size=40),
            pools=st.just(pools),
            duration_s=st.just(duration_s),
            jobs=st.lists(job, max_size=2),
        )

    return st.lists(pool, min_size=1, max_size=3).flatmap(filled)


_CLOCK = st.sampled_from([1.0, 0.9, 0.7, 0.4, 0.25])
_HOLD = st.sampled_from([inf, 7000.0, 5000.0, 3000.0])

SETTINGS = st.builds(
    Setting,
    clocks=st.builds(Clocks, _CLOCK, _CLOCK, _CLOCK, _CLOCK, _CLOCK),
    low_limit_w=_HOLD,
    high_limit_w=_HOLD,
    routing=st.builds(Routing, st.integers(1, 4), st.integers(1, 4), st.sampled_from([0.0, 0.4, 0.7, 1.0])),
)

SCRIPTS = st.builds(
    Scripted,
    steps=st.lists(st.tuples(st.floats(0, 60), SETTINGS), max_size=5).map(
        lambda steps: tuple(sorted(steps, key=lambda step: step[0]))
    ),
    command_delay_s=st.sampled_from([0.0, 1.3, 7.5]),
)
