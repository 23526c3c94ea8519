"""An emulated worker: costs from the planner at its clock, and power from the power model."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from deploy.common.clock import Clock
from deploy.emulator.engine import IDLE, Engine, Work
from deploy.emulator.worker import MIN_CLOCK, WorkerLoop, WorkerSpec, tuning
from planner.performance import step_costs, step_s
from power.curves import power_curve

GPUS = st.sampled_from(["H100-SXM", "A100-80GB-SXM", "L4", "MI300X"])
CLOCKS = st.floats(MIN_CLOCK, 1.0)
REQUESTS = st.lists(st.tuples(st.integers(1, 3000), st.integers(1, 300)), min_size=1, max_size=12)


def engine(spec: WorkerSpec, *, clock: float = 1.0) -> Engine:
    """An engine of this worker without its loop."""
    tuned = tuning(spec, clock=clock)
    return Engine(costs=tuned.costs, watts=tuned.watts)


def finishes(found: Engine, requests: list[tuple[int, int]]) -> list[float]:
    """The finish time of each request, in order, when all arrive at once."""
    for at, (prompt, output) in enumerate(requests):
        found.submit(str(at), prompt_tokens=prompt, output_tokens=output)
    last = {token.key: token.at_s for token in found.advance(1e6) if token.last}
    return [last[str(at)] for at in range(len(requests))]


def test_costs_at_full_clock_match_the_planner() -> None:
    spec = WorkerSpec(gpu="H100-SXM", input_tokens=500, output_tokens=100)
    assert tuning(spec).costs == step_costs(spec.config(), input_tokens=500, output_tokens=100)


@given(gpu=GPUS, requests=REQUESTS, clocks=st.tuples(CLOCKS, CLOCKS))
def test_no_request_finishes_earlier_at_a_lower_clock(
    gpu: str, requests: list[tuple[int, int]], clocks: tuple[float, float]
) -> None:
    spec = WorkerSpec(gpu=gpu)
    slow, fast = (finishes(engine(spec, clock=clock), requests) for clock in sorted(clocks))
    assert all(slow_s >= fast_s * (1 - 1e-9) for slow_s, fast_s in zip(slow, fast, strict=True))


@given(gpu=GPUS, clock=CLOCKS, decoding=st.integers(0, 400), prompt=st.integers(0, 8192), gpus=st.sampled_from([1, 2]))
def test_power_stays_within_the_power_curve(gpu: str, clock: float, decoding: int, prompt: int, gpus: int) -> None:
    spec = WorkerSpec(gpu=gpu, gpus=gpus if power_curve(WorkerSpec(gpu=gpu).board).gpu.link_domain_gpus > 1 else 1)
    curve, watts = power_curve(spec.board), tuning(spec, clock=clock).watts
    drawn_w = watts(Work(decoding=decoding, prompt_tokens=prompt))
    assert spec.gpus * curve.idle_w.mid <= drawn_w <= spec.gpus * curve.busy_w(clock).mid * (1 + 1e-9)


@given(gpu=GPUS, work=st.builds(Work, decoding=st.integers(1, 300), prompt_tokens=st.integers(0, 2048)))
def test_a_lower_clock_never_draws_more(gpu: str, work: Work) -> None:
    spec = WorkerSpec(gpu=gpu)
    drawn = [tuning(spec, clock=clock).watts(work) for clock in (0.3, 0.5, 0.7, 0.9, 1.0)]
    assert all(lower <= higher * (1 + 1e-9) for lower, higher in pairwise(drawn))


def test_power_grows_with_concurrency_and_is_highest_in_prefill() -> None:
    spec = WorkerSpec(gpu="H100-SXM")
    watts, curve = tuning(spec).watts, power_curve(spec.board)
    drawn = [watts(IDLE), *(watts(Work(decoding=count)) for count in (1, 8, 64, 256)), watts(Work(prompt_tokens=9))]
    assert drawn == sorted(drawn)
    assert (drawn[0], drawn[-1]) == (curve.idle_w.mid, curve.busy_w().mid)


def test_a_lower_sequence_limit_is_respected() -> None:
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
def test_an_invalid_worker_spec_is_refused(given_: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        WorkerSpec.model_validate(given_)


pytestmark = pytest.mark.anyio


@dataclass
class Time:
    """A clock that advances with each sleep."""

    at_s: float = 100.0

    def now_s(self) -> float:
        return self.at_s

    async def sleep(self, seconds: float) -> None:
        self.at_s += seconds
        await asyncio.sleep(0)


@dataclass
class Bench:
    """A worker and its time."""

    time: Time
    worker: WorkerLoop

    async def answer(self, *, prompt: int, output: int) -> list[float]:
        """The token times, in model seconds after the request."""
        return [taken_s async for _, taken_s in self.worker.tokens(prompt_tokens=prompt, output_tokens=output)]


@pytest.fixture(params=[1.0, 20.0])
async def bench(request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    time = Time()
    spec = WorkerSpec(gpu="H100-SXM", time_scale=request.param)
    worker = WorkerLoop(spec=spec, clock=Clock(steady_s=time.now_s, sleep=time.sleep))
    yield Bench(time, worker)
    await worker.stop()


async def test_token_times_match_the_model_at_any_time_scale(bench: Bench) -> None:
    alone = engine(bench.worker.spec)
    alone.submit("0", prompt_tokens=300, output_tokens=12)
    began_s = bench.time.at_s
    taken = await bench.answer(prompt=300, output=12)
    assert taken == pytest.approx([token.at_s for token in alone.advance(1e3)])
    here_s = bench.time.at_s - began_s
    assert here_s >= taken[-1] / bench.worker.spec.time_scale * (1 - 1e-9)


async def test_concurrent_requests_are_batched(bench: Bench) -> None:
    one = (await bench.answer(prompt=100, output=50))[-1]
    many = await asyncio.gather(*(bench.answer(prompt=100, output=50) for _ in range(8)))
    assert all(len(taken) == 50 for taken in many)
    assert max(taken[-1] for taken in many) < 2 * one


async def test_a_cancelled_request_frees_its_slot(bench: Bench) -> None:
    async with aclosing(bench.worker.tokens(prompt_tokens=10, output_tokens=10_000)) as tokens:
        async for token, _ in tokens:
            if token.index == 3:
                break
    assert bench.worker.report().in_flight == 0
    assert len(await bench.answer(prompt=10, output=5)) == 5


async def test_a_lower_clock_takes_effect_immediately_and_draws_less_power(bench: Bench) -> None:
    fast = (await bench.answer(prompt=4000, output=5))[-1]
    bench.worker.report()
    await bench.answer(prompt=4000, output=5)
    full_w = bench.worker.report().power_w
    bench.worker.set_clock(0.4)
    slow = (await bench.answer(prompt=4000, output=5))[-1]
    report = bench.worker.report()
    assert slow > 1.5 * fast
    assert report.power_w < full_w
    assert report.clock == 0.4


async def test_reports_contain_the_mean_power_since_the_previous_report(bench: Bench) -> None:
    before = bench.worker.report()
    await bench.answer(prompt=2000, output=20)
    after = bench.worker.report()
    assert after.power_w == pytest.approx((after.energy_j - before.energy_j) / (after.at_s - before.at_s))
    assert (after.tokens_written, after.in_flight) == (20, 0)
