"""Load: requests at random times, with the size distribution of a plan, and their results."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx
import numpy as np

from fleet.sizes.histogram import SizeBuckets

PATH = "/v1/completions"
OK = 200
MAX_SAID = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """One complete response; times are in model seconds."""

    sent_s: float
    ttft_s: float
    e2e_s: float


@dataclass(slots=True, kw_only=True)
class Load:
    """Open-loop load: slow responses do not delay arrivals."""

    http: httpx.AsyncClient
    url: str
    buckets: SizeBuckets
    rng: np.random.Generator
    rate_rps: float  # in seconds of this machine
    answered: list[Answered] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    _under_way: set["asyncio.Task[None]"] = field(default_factory=set)

    @property
    def sent(self) -> int:
        """Return the results until now."""
        return len(self.answered) + len(self.lost) + len(self._under_way)

    async def keep_sending(self) -> None:
        """Generate requests until cancelled."""
        while True:
            task = asyncio.create_task(self._ask(*self._size()))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)
            await asyncio.sleep(self.rng.exponential(1.0 / self.rate_rps))

    async def finish(self) -> None:
        """Wait for the requests in flight."""
        if self._under_way:
            await asyncio.wait(set(self._under_way))

    def _size(self) -> tuple[int, int]:
        cells = list(self.buckets.buckets())
        weights = np.array([cell.share for cell in cells])
        return cells[self.rng.choice(len(cells), p=weights / weights.sum())].edge

    async def _ask(self, prompt_tokens: int, output_tokens: int) -> None:
        sent_s = asyncio.get_running_loop().time()
        body = {"prompt": [1] * prompt_tokens, "max_tokens": output_tokens}
        try:
            answer = await self.http.post(f"{self.url}{PATH}", json=body)
            if answer.status_code != OK:
                self.lost.append(f"{answer.status_code}: {answer.text[:MAX_SAID]}")
                return
            document = answer.json()
            if document["usage"]["completion_tokens"] != output_tokens:
                self.lost.append("an incomplete response")
                return
        except (httpx.HTTPError, ValueError, KeyError) as error:
            self.lost.append(repr(error)[:MAX_SAID])
            return
        timing = document["twin"]
        self.answered.append(Answered(sent_s=sent_s, ttft_s=timing["ttft_s"], e2e_s=timing["e2e_s"]))


@asynccontextmanager
async def sending(load: Load) -> AsyncIterator[Load]:
    """Generate load during the block; at its end each request has its response or is lost."""
    task = asyncio.create_task(load.keep_sending())
    try:
        yield load
    finally:
        task.cancel()
        await asyncio.wait({task})
        await load.finish()


def percentile_s(values: Sequence[float], share: float) -> float | None:
    """Return the percentile; None without values."""
    return float(np.quantile(np.array(values), share)) if values else None
