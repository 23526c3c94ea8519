"""A worker in the time of this process: scaled, told at once, and fair to callers who leave."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass

import pytest

from deploy.common.clock import Clock
from deploy.emulator.worker import WorkerSpec, engine
from deploy.emulator.worker_loop import WorkerLoop

pytestmark = pytest.mark.anyio


@dataclass
class Time:
    """Passes when somebody sleeps."""

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
        """When the tokens came, in the model's seconds after the request."""
        return [taken_s async for _, taken_s in self.worker.tokens(prompt_tokens=prompt, output_tokens=output)]


@pytest.fixture(params=[1.0, 20.0])
async def bench(request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    time = Time()
    spec = WorkerSpec(gpu="H100-SXM", time_scale=request.param)
    worker = WorkerLoop(spec=spec, clock=Clock(steady_s=time.now_s, sleep=time.sleep))
    yield Bench(time, worker)
    await worker.stop()


async def test_tokens_take_the_times_of_the_model_whatever_the_scale(bench: Bench) -> None:
    alone = engine(bench.worker.spec)
    alone.submit("0", prompt_tokens=300, output_tokens=12)
    began_s = bench.time.at_s
    taken = await bench.answer(prompt=300, output=12)
    assert taken == pytest.approx([token.at_s for token in alone.advance(1e3)])
    here_s = bench.time.at_s - began_s
    assert here_s >= taken[-1] / bench.worker.spec.time_scale * (1 - 1e-9)


async def test_callers_at_once_are_batched(bench: Bench) -> None:
    one = (await bench.answer(prompt=100, output=50))[-1]
    many = await asyncio.gather(*(bench.answer(prompt=100, output=50) for _ in range(8)))
    assert all(len(taken) == 50 for taken in many)
    assert max(taken[-1] for taken in many) < 2 * one


async def test_a_caller_who_leaves_frees_the_place(bench: Bench) -> None:
    async with aclosing(bench.worker.tokens(prompt_tokens=10, output_tokens=10_000)) as tokens:
        async for token, _ in tokens:
            if token.index == 3:
                break
    assert bench.worker.report().in_flight == 0
    assert len(await bench.answer(prompt=10, output=5)) == 5


async def test_a_lower_clock_is_slower_at_once_and_draws_less(bench: Bench) -> None:
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


async def test_reports_tell_mean_power_since_the_one_before(bench: Bench) -> None:
    before = bench.worker.report()
    await bench.answer(prompt=2000, output=20)
    after = bench.worker.report()
    assert after.power_w == pytest.approx((after.energy_j - before.energy_j) / (after.at_s - before.at_s))
    assert (after.tokens_written, after.in_flight) == (20, 0)
