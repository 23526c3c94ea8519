"""Replays a request trace against an OpenAI-compatible address in scaled time, open loop.

    python -m deploy.emulator.trace_player trace.csv.gz --url http://127.0.0.1:8000 --time-scale 10 --change 600:2:3

Any format of `fleet.traces` is read, gzipped or not: the Azure and Mooncake traces among others.  `--change S:R:P`
multiplies the rate by R and the lengths of prompts by P from S seconds on.  Prompts are text of four bytes per token,
which emulated engines count and routers can measure; responses are not streamed.  The report is JSON.
"""

import argparse
import asyncio
import gzip
import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import Field

from deploy.common.clock import Clock
from deploy.common.shutdown import run_until_sigterm
from deploy.emulator.openai_protocol import BYTES_PER_TOKEN
from fleet.documents import Frozen
from fleet.errors import DocumentError
from fleet.traces import Trace, read_trace

PATH = "/v1/completions"
OK = 200
MAX_REASON_CHARS = 200
PATIENCE_S = 600.0  # for one response


class Change(NamedTuple):
    """From `from_s` on, gaps between arrivals shrink by `rate`, and prompts grow by `prompt`."""

    from_s: float
    rate: float = 1.0
    prompt: float = 1.0


def changed(trace: Trace, change: Change) -> Trace:
    after = trace.arrival_s >= change.from_s
    arrival_s = np.where(after, change.from_s + (trace.arrival_s - change.from_s) / change.rate, trace.arrival_s)
    prompts = np.where(after, np.maximum(1, np.rint(trace.input_tokens * change.prompt)), trace.input_tokens)
    return Trace(arrival_s, prompts.astype(np.int64), trace.output_tokens.copy(), start=trace.start)


def between(trace: Trace, from_s: float, until_s: float) -> Trace:
    """Return the requests of a period, with times from its start."""
    chosen = (trace.arrival_s >= from_s) & (trace.arrival_s < until_s)
    return Trace(trace.arrival_s[chosen] - from_s, trace.input_tokens[chosen], trace.output_tokens[chosen])


def read_trace_file(path: Path) -> Trace:
    content = path.read_bytes()
    text = gzip.decompress(content) if path.suffix == ".gz" else content
    return read_trace(text.decode("utf-8"), name=path.name)


class PlayReport(Frozen):
    """Times of responses are model seconds; lags are seconds of this machine."""

    sent: int
    finished: int
    failed: int
    failures: dict[str, int] = Field(description="Count by HTTP status or kind of error.")
    first_failure: str | None
    max_lag_s: float = Field(description="Longest delay of a request behind its time in the trace.")
    seconds: float = Field(description="From the first request to the last response, on this machine.")
    ttft_s: tuple[float, ...] = Field(default=(), description="In the order of responses.")
    e2e_s: tuple[float, ...] = ()


@dataclass(slots=True, kw_only=True)
class TracePlayer:
    trace: Trace
    url: str
    time_scale: float = 1.0
    clock: Clock = field(default_factory=Clock)
    sent: int = 0
    max_lag_s: float = 0.0
    times: list[tuple[float, float]] = field(default_factory=list)  # TTFT and duration of each response
    failures: Counter[str] = field(default_factory=Counter)
    first_failure: str | None = None
    _under_way: "set[asyncio.Task[None]]" = field(default_factory=set)

    async def play(self) -> PlayReport:
        """Send every request at its time, and wait for the responses."""
        import aiohttp  # noqa: PLC0415 - comes with the extra `ray`

        connector = aiohttp.TCPConnector(limit=0)
        timeout = aiohttp.ClientTimeout(total=PATIENCE_S)
        began_s = self.clock.steady_s()
        async with aiohttp.ClientSession(connector=connector, timeout=timeout, trust_env=False) as session:
            for arrival_s, prompt, output in zip(
                self.trace.arrival_s.tolist(),
                self.trace.input_tokens.tolist(),
                self.trace.output_tokens.tolist(),
                strict=True,
            ):
                due_s = began_s + arrival_s / self.time_scale
                if (wait_s := due_s - self.clock.steady_s()) > 0:
                    await self.clock.sleep(wait_s)
                self.max_lag_s = max(self.max_lag_s, self.clock.steady_s() - due_s)
                self.sent += 1
                task = asyncio.create_task(self._send(session, prompt, output))
                self._under_way.add(task)
                task.add_done_callback(self._under_way.discard)
            while self._under_way:
                await asyncio.wait(set(self._under_way))
        return self.report(seconds=self.clock.steady_s() - began_s)

    def report(self, *, seconds: float) -> PlayReport:
        return PlayReport(
            sent=self.sent,
            finished=len(self.times),
            failed=self.failures.total(),
            failures=dict(self.failures),
            first_failure=self.first_failure,
            max_lag_s=self.max_lag_s,
            seconds=seconds,
            ttft_s=tuple(ttft_s for ttft_s, _ in self.times),
            e2e_s=tuple(e2e_s for _, e2e_s in self.times),
        )

    async def _send(self, session: Any, prompt_tokens: int, output_tokens: int) -> None:
        import aiohttp  # noqa: PLC0415 - comes with the extra `ray`

        text = b"x" * (max(1, prompt_tokens) * BYTES_PER_TOKEN)
        body = b'{"prompt":"%b","max_tokens":%d}' % (text, output_tokens)
        headers = {"Content-Type": "application/json"}
        try:
            async with session.post(f"{self.url}{PATH}", data=body, headers=headers) as response:
                content = await response.read()
                if response.status != OK:
                    self._failed(str(response.status), content.decode(errors="replace"))
                    return
                timing = json.loads(content)["emulator"]
                self.times.append((timing["ttft_s"], timing["e2e_s"]))
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, KeyError) as error:
            self._failed(type(error).__name__, repr(error))

    def _failed(self, kind: str, reason: str) -> None:
        self.failures[kind] += 1
        self.first_failure = self.first_failure or reason[:MAX_REASON_CHARS]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m deploy.emulator.trace_player")
    parser.add_argument("file", type=Path)
    parser.add_argument("--url", required=True)
    parser.add_argument("--time-scale", type=float, default=1.0, help="seconds of the trace per second")
    parser.add_argument("--from-s", type=float, default=0.0, help="of the trace")
    parser.add_argument("--until-s", type=float, default=float("inf"), help="of the trace")
    parser.add_argument("--change", type=_change, action="append", default=[], help="S:R:P, as above", metavar="S:R:P")
    given = parser.parse_args(arguments)
    try:
        trace = between(read_trace_file(given.file), given.from_s, given.until_s)
    except (OSError, UnicodeDecodeError, DocumentError) as error:
        parser.error(str(error))
    for change in given.change:
        trace = changed(trace, change)
    player = TracePlayer(trace=trace, url=given.url.rstrip("/"), time_scale=given.time_scale)
    report = asyncio.run(run_until_sigterm(player.play()))
    if report is None:
        return 1
    sys.stdout.write(report.model_dump_json(exclude={"ttft_s", "e2e_s"}) + "\n")
    return 1 if report.failed else 0


def _change(text: str) -> Change:
    from_s, rate, prompt = map(float, text.split(":"))
    if from_s < 0 or rate <= 0 or prompt <= 0:
        raise ValueError(text)
    return Change(from_s, rate, prompt)


if __name__ == "__main__":
    sys.exit(main())
