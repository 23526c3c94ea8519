"""What became of the requests of a fleet: finished, within their objectives, dropped, withdrawn."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pydantic import Field

from deploy.emulator.engine import Token, TooLongError
from deploy.emulator.metric_pages import RequestRecord
from deploy.emulator.worker import UnavailableError
from fleet.documents import Frozen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deploy.emulator.openai_worker import TokenSource


class Objectives(Frozen):
    """The SLO of each request, in model seconds."""

    ttft_s: float = Field(default=2.0, gt=0)
    tpot_s: float = Field(default=0.1, gt=0, description="Mean time per output token after the first.")


class Counts(Frozen):
    """Requests since the start.  Each arrived one is in flight, or in one of the four counts of outcomes."""

    arrived: int
    finished: int
    dropped: int = Field(description="No replica was ready, or the replica stopped before the last token.")
    refused: int = Field(description="Longer than the cache of a replica.")
    withdrawn: int = Field(description="The client left.")
    within_ttft: int
    within_tpot: int
    within_objectives: int = Field(description="Finished within both.")
    prompt_tokens: int = Field(description="Of finished requests.")
    output_tokens: int = Field(description="Of finished requests.")


@dataclass(slots=True)
class Account:
    objectives: Objectives
    _counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(Counts.model_fields, 0))

    def counts(self) -> Counts:
        return Counts.model_validate(self._counts)

    @contextmanager
    def request(self) -> "Iterator[None]":
        """Count the arrival of a request, and its outcome unless it finishes."""
        self._counts["arrived"] += 1
        try:
            yield
        except UnavailableError:
            self._counts["dropped"] += 1
            raise
        except TooLongError:
            self._counts["refused"] += 1
            raise
        except (asyncio.CancelledError, GeneratorExit):
            self._counts["withdrawn"] += 1
            raise

    def finished(self, *, prompt_tokens: int, output_tokens: int, ttft_s: float, e2e_s: float) -> None:
        in_ttft = ttft_s <= self.objectives.ttft_s
        in_tpot = e2e_s - ttft_s <= self.objectives.tpot_s * max(output_tokens - 1, 1)
        for name, amount in (
            ("finished", 1),
            ("within_ttft", in_ttft),
            ("within_tpot", in_tpot),
            ("within_objectives", in_ttft and in_tpot),
            ("prompt_tokens", prompt_tokens),
            ("output_tokens", output_tokens),
        ):
            self._counts[name] += amount


@dataclass(frozen=True, slots=True)
class Accounted:
    """A source of tokens whose requests are counted."""

    source: "TokenSource"
    account: Account

    async def tokens(self, *, prompt_tokens: int, output_tokens: int) -> AsyncGenerator[tuple[Token, float], None]:
        ttft_s = e2e_s = 0.0
        with self.account.request():
            async with aclosing(self.source.tokens(prompt_tokens=prompt_tokens, output_tokens=output_tokens)) as tokens:
                async for token, e2e_s in tokens:
                    ttft_s = e2e_s if token.index == 0 else ttft_s
                    yield token, e2e_s
        self.account.finished(prompt_tokens=prompt_tokens, output_tokens=output_tokens, ttft_s=ttft_s, e2e_s=e2e_s)

    async def complete(self, *, prompt_tokens: int, output_tokens: int) -> RequestRecord:
        with self.account.request():
            done = await self.source.complete(prompt_tokens=prompt_tokens, output_tokens=output_tokens)
        self.account.finished(
            prompt_tokens=prompt_tokens, output_tokens=output_tokens, ttft_s=done.ttft_s, e2e_s=done.e2e_s
        )
        return done
