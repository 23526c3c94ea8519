"""The size of a request: prompt tokens from bytes, output tokens from observed outputs."""

from collections.abc import Hashable, Sequence

from deploy.router.table import RoutingTable
from deploy.router.weighted_round_robin import WeightedRoundRobin

FIRST_TOKENS_PER_BYTE = 0.25
MEMORY_REQUESTS = 500.0  # of the tokens per byte, and of counts per row and class
PLAN_WORTH_REQUESTS = 50.0  # the plan's shares weigh as much as so many observed outputs
MAX_CLASSES = 1_000


class TokensPerByte:
    """An exponential mean of tokens per byte of one model's prompts."""

    def __init__(self) -> None:
        self.ratio = FIRST_TOKENS_PER_BYTE
        self._seen = 0.0

    def observe(self, *, prompt_bytes: int, prompt_tokens: int) -> None:
        if prompt_bytes <= 0 or prompt_tokens <= 0:
            return
        self._seen = min(self._seen + 1.0, MEMORY_REQUESTS)
        self.ratio += (prompt_tokens / prompt_bytes - self.ratio) / self._seen

    def tokens(self, prompt_bytes: int) -> float:
        return prompt_bytes * self.ratio


class Outputs:
    """Distributions of outputs over the plan's columns, per row and class of callers, and draws from them."""

    def __init__(self, table: RoutingTable, *, before: "Outputs | None" = None) -> None:
        """The counts of `before` stay where the buckets are the same."""
        self._table = table
        self._planned = [_plan(row) for row in table.share]
        kept = before.counts if before is not None and before.edges == self.edges else {}
        self.counts: dict[tuple[int, Hashable], list[float]] = kept
        self._draws: dict[tuple[int, Hashable, int], WeightedRoundRobin[int]] = {}

    @property
    def edges(self) -> tuple[Sequence[int], Sequence[int]]:
        return self._table.input_tokens, self._table.output_tokens

    def observe(self, *, row: int, caller: Hashable, output_tokens: int) -> None:
        for whose in {caller, None}:
            counts = self.counts.get((row, whose))
            if counts is None:
                if len(self.counts) >= MAX_CLASSES * len(self._table.input_tokens):
                    continue
                counts = self.counts[row, whose] = [0.0] * len(self._table.output_tokens)
            keep = 1.0 - 1.0 / MEMORY_REQUESTS
            for column, count in enumerate(counts):
                counts[column] = count * keep
            counts[self._table.column_of(output_tokens)] += 1.0

    def expected(self, *, row: int, caller: Hashable, max_output_tokens: float) -> list[float]:
        shares = _blend(self.counts.get((row, None)), self._planned[row])
        if caller is not None:
            shares = _blend(self.counts.get((row, caller)), shares)
        last = self._table.column_of(max_output_tokens)
        return [*shares[:last], sum(shares[last:]), *[0.0] * (len(shares) - last - 1)]

    def column(self, *, row: int, caller: Hashable, max_output_tokens: float) -> int:
        """Draw the column of the next request of this kind."""
        key = (row, caller, self._table.column_of(max_output_tokens))
        shares = dict(enumerate(self.expected(row=row, caller=caller, max_output_tokens=max_output_tokens)))
        known = self._draws.get(key)
        quota = WeightedRoundRobin(shares, credits_before=known.credits if known is not None else None)
        if known is not None or len(self._draws) < MAX_CLASSES * len(shares):
            self._draws[key] = quota
        column = quota.choose()
        return key[2] if column is None else column


def _plan(share: Sequence[float]) -> list[float]:
    total = sum(share)
    return [each / total for each in share] if total > 0.0 else [1.0 / len(share)] * len(share)


def _blend(counts: Sequence[float] | None, before: Sequence[float]) -> list[float]:
    if counts is None:
        return list(before)
    total = sum(counts) + PLAN_WORTH_REQUESTS
    return [
        (observed + PLAN_WORTH_REQUESTS * assumed) / total for observed, assumed in zip(counts, before, strict=True)
    ]
