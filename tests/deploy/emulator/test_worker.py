"""A worker by name: the planner's costs at its clock, the power room's watts."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from deploy.emulator.engine import IDLE, Engine, Work
from deploy.emulator.worker import MIN_CLOCK, WorkerSpec, engine, tuning
from planner.performance import step_costs, step_s
from power.curves import power_curve

GPUS = st.sampled_from(["H100-SXM", "A100-80GB-SXM", "L4", "MI300X"])
CLOCKS = st.floats(MIN_CLOCK, 1.0)
REQUESTS = st.lists(st.tuples(st.integers(1, 3000), st.integers(1, 300)), min_size=1, max_size=12)


def finishes(found: Engine, requests: list[tuple[int, int]]) -> list[float]:
    """When each is done, in order, where all come at once."""
    for at, (prompt, output) in enumerate(requests):
        found.submit(str(at), prompt_tokens=prompt, output_tokens=output)
    last = {token.key: token.at_s for token in found.advance(1e6) if token.last}
    return [last[str(at)] for at in range(len(requests))]


def test_full_clock_costs_what_the_planner_says() -> None:
    spec = WorkerSpec(gpu="H100-SXM", input_tokens=500, output_tokens=100)
    assert tuning(spec).costs == step_costs(spec.config(), input_tokens=500, output_tokens=100)


@given(gpu=GPUS, requests=REQUESTS, clocks=st.tuples(CLOCKS, CLOCKS))
def test_no_request_is_done_sooner_at_a_slower_clock(
    gpu: str, requests: list[tuple[int, int]], clocks: tuple[float, float]
) -> None:
    spec = WorkerSpec(gpu=gpu)
    slow, fast = (finishes(engine(spec, clock=clock), requests) for clock in sorted(clocks))
    assert all(slow_s >= fast_s * (1 - 1e-9) for slow_s, fast_s in zip(slow, fast, strict=True))


@given(gpu=GPUS, clock=CLOCKS, decoding=st.integers(0, 400), prompt=st.integers(0, 8192), gpus=st.sampled_from([1, 2]))
def test_power_is_within_the_curve(gpu: str, clock: float, decoding: int, prompt: int, gpus: int) -> None:
    spec = WorkerSpec(gpu=gpu, gpus=gpus if power_curve(WorkerSpec(gpu=gpu).board).gpu.link_domain_gpus > 1 else 1)
    curve, watts = power_curve(spec.board), tuning(spec, clock=clock).watts
    drawn_w = watts(Work(decoding=decoding, prompt_tokens=prompt))
    assert spec.gpus * curve.idle_w.mid <= drawn_w <= spec.gpus * curve.busy_w(clock).mid * (1 + 1e-9)


@given(gpu=GPUS, work=st.builds(Work, decoding=st.integers(1, 300), prompt_tokens=st.integers(0, 2048)))
def test_a_lower_clock_never_draws_more(gpu: str, work: Work) -> None:
    spec = WorkerSpec(gpu=gpu)
    drawn = [tuning(spec, clock=clock).watts(work) for clock in (0.3, 0.5, 0.7, 0.9, 1.0)]
    assert all(lower <= higher * (1 + 1e-9) for lower, higher in pairwise(drawn))


def test_more_at_once_draws_more_and_a_prompt_the_most() -> None:
    spec = WorkerSpec(gpu="H100-SXM")
    watts, curve = tuning(spec).watts, power_curve(spec.board)
    drawn = [watts(IDLE), *(watts(Work(decoding=count)) for count in (1, 8, 64, 256)), watts(Work(prompt_tokens=9))]
    assert drawn == sorted(drawn)
    assert (drawn[0], drawn[-1]) == (curve.idle_w.mid, curve.busy_w().mid)


def test_fewer_places_than_the_model_says_are_kept() -> None:
    spec = WorkerSpec(gpu="L4", max_sequences=2)
    found = engine(spec)
    for at in range(5):
        found.submit(str(at), prompt_tokens=10, output_tokens=50)
    found.advance(1.0)
    assert found.waiting == 3
    assert step_s(found.costs, decoding=2.0, cached_tokens=100.0) > 0


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ({"gpu": "H1000"}, "H1000"),
        ({"gpu": "L4", "model": "Lama"}, "Lama"),
        ({"gpu": "L4", "model": "Llama-3.1-70B"}, "Llama-3.1-70B on 1 L4"),
        ({"gpu": "L4", "time_scale": 0.0}, "time_scale"),
    ],
)
def test_what_cannot_be_is_refused(given_: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        WorkerSpec.model_validate(given_)
