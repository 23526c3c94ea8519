"""Request classes by priority, with their sizes, each on its own servers."""

from collections.abc import Iterator
from typing import Annotated, Self

from pydantic import Field, model_validator

from fleet.documents import Frozen, RuleError, Violation
from power.controls import Priority
from power.server_model import ServerModel
from power.workload.workload import Pool

Tokens = Annotated[int, Field(ge=1, le=10_000_000)]


class RequestClass(Frozen):
    """Requests with prompt and output sizes drawn uniformly from ranges, both ends included."""

    name: Annotated[str, Field(min_length=1, max_length=100)]
    priority: Priority
    prompt_tokens: tuple[Tokens, Tokens]
    output_tokens: tuple[Tokens, Tokens]
    share: Annotated[float, Field(gt=0, le=1)]  # of the servers; load is even over servers

    @model_validator(mode="after")
    def _ranges_rise(self) -> Self:
        RuleError.raise_for(self._violations())
        return self

    def mean_service_s(self, model: ServerModel) -> float:
        """Return the time of a lone request on a server at full clock: prompt and output."""
        return mean_prompt_s(model, self.prompt_tokens) + model.token_s * sum(self.output_tokens) / 2

    def _violations(self) -> Iterator[Violation]:
        for name in ("prompt_tokens", "output_tokens"):
            low, high = getattr(self, name)
            if low > high:
                yield (name,), f"must run from the lower to the higher number, got {low} to {high}"


class Mix(Frozen):
    kinds: Annotated[tuple[RequestClass, ...], Field(min_length=1, max_length=100)]

    @model_validator(mode="after")
    def _shares_make_one(self) -> Self:
        total = sum(kind.share for kind in self.kinds)
        if abs(total - 1) > 1e-6:
            raise RuleError([(("kinds",), f"shares must add up to 1, got {total:g}")])
        return self

    def pools(self, servers: int) -> tuple[Pool, ...]:
        """Return a pool for each class, none empty; together exactly `servers` servers."""
        if servers < len(self.kinds):
            message = f"must be at least {len(self.kinds)}, one for each kind of request, got {servers}"
            raise RuleError([(("servers",), message)])
        sizes = [1] * len(self.kinds)
        for _ in range(servers - len(sizes)):  # Sainte-Lague: the class furthest below its share
            sizes[max(range(len(sizes)), key=lambda at: self.kinds[at].share / (sizes[at] + 0.5))] += 1
        return tuple(
            Pool(name=kind.name, priority=kind.priority, servers=size)
            for kind, size in zip(self.kinds, sizes, strict=True)
        )


def mean_prompt_s(model: ServerModel, prompt_tokens: tuple[int, int]) -> float:
    """Return the mean time to read a prompt of a size in a range; the mean of the square is exact."""
    low, high = prompt_tokens
    count = high - low + 1
    mean = (low + high) / 2
    s0, s1, s2 = model.prompt_s
    return s0 + s1 * mean + s2 * (mean * mean + (count * count - 1) / 12)


# POLCA's mix for BLOOM-176B (arXiv 2308.12908, recalled rather than re-read; November 2026), chat halved by priority.
POLCA_MIX = Mix(
    kinds=tuple(
        RequestClass(name=name, priority=priority, prompt_tokens=prompt, output_tokens=output, share=0.25)
        for name, priority, prompt, output in (
            ("summarize", Priority.LOW, (2048, 8192), (256, 512)),
            ("search", Priority.HIGH, (512, 2048), (1024, 2048)),
            ("chat-low", Priority.LOW, (2048, 4096), (128, 2048)),
            ("chat-high", Priority.HIGH, (2048, 4096), (128, 2048)),
        )
    )
)
