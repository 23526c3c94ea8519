"""The work of a row: requests in the order of their arrival, the pools of servers that take them, training jobs."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from pydantic import Field

from fleet.documents import Frozen, RuleError, Violation
from power.arrays import Floats, Ints
from power.controls import Priority
from power.server_model import Training


class Pool(Frozen):
    name: str = Field(min_length=1, max_length=100)
    priority: Priority
    servers: int = Field(ge=0, le=100_000)


class TrainingJob(Training):
    """A job that computes on all its servers together, then exchanges; its power swings with that."""

    name: str = Field(min_length=1, max_length=100)
    servers: int = Field(ge=1, le=100_000)
    iteration_s: float = Field(gt=0, le=3600)  # at full clock
    compute_w: float = Field(gt=0, le=1e6)  # of one server at full clock
    start_s: float = Field(default=0.0, ge=0)


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    duration_s: float
    pools: tuple[Pool, ...]
    arrival_s: Floats  # rising, below duration_s
    pool: Ints  # of each request, an index into pools
    prompt_tokens: Ints
    output_tokens: Ints
    jobs: tuple[TrainingJob, ...] = field(default=())

    def __post_init__(self) -> None:
        RuleError.raise_for(self._violations())

    @property
    def servers(self) -> int:
        return sum(pool.servers for pool in self.pools) + sum(job.servers for job in self.jobs)

    def _violations(self) -> Iterator[Violation]:
        requests = len(self.arrival_s)
        for name in ("pool", "prompt_tokens", "output_tokens"):
            if len(getattr(self, name)) != requests:
                yield (name,), f"must have one entry for each of the {requests} requests"
                return
        if not requests:
            return
        if np.any(np.diff(self.arrival_s) < 0) or self.arrival_s[0] < 0 or self.arrival_s[-1] >= self.duration_s:
            yield ("arrival_s",), f"must rise from 0 to below duration_s ({self.duration_s:g})"
        if self.pool.min() < 0 or self.pool.max() >= len(self.pools):
            yield ("pool",), f"must be an index into the {len(self.pools)} pools"
        if self.prompt_tokens.min() < 1 or self.output_tokens.min() < 1:
            yield ("prompt_tokens",), "prompts and outputs must have at least one token"
