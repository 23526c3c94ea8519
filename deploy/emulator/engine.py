"""A continuously batching engine that is stepped iteration by iteration with the given time.

Scheduling is that of the replay (docs/explanation/planner/replay.md, section 2), which follows vLLM V1: decoding
sequences first, then the partly read prompt, then the waiting requests, in one budget of tokens per iteration.  A
sequence without space in the cache preempts the one admitted last.  Unlike the replay, the engine does not know future
requests: the caller submits and removes sequences while it runs, and its costs change with the clock level.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf

from fleet.errors import FleetwrightError
from planner.performance.steps import StepCosts, step_s


class TooLongError(FleetwrightError):
    """The request does not fit even into an empty cache."""


@dataclass(frozen=True, slots=True)
class Token:
    key: str
    at_s: float
    index: int  # from 0
    last: bool
    started_s: float  # first admission of its sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The work of an iteration; none while the engine is idle."""

    decoding: int = 0
    prompt_tokens: int = 0


IDLE = Work()


@dataclass(slots=True, eq=False)
class _Sequence:
    key: str
    prompt_tokens: int
    output_tokens: int
    ready_s: float
    loaded: int  # prompt tokens that need space in the cache but no arithmetic
    started_s: float = inf
    cached: int = 0
    generated: int = 0
    decodes: bool = False  # all but its newest token is in the cache

    @property
    def missing(self) -> int:
        return self.prompt_tokens + self.generated - self.cached


@dataclass(frozen=True, slots=True, kw_only=True)
class _Iteration:
    end_s: float
    taking_part: tuple[tuple[_Sequence, int], ...]  # with how many tokens
    work: Work


@dataclass(slots=True, kw_only=True)
class Engine:
    """One replica.  All times are model seconds; `watts` gives the power of a kind of work."""

    costs: StepCosts
    watts: Callable[[Work], float] = lambda _work: 0.0
    on_iteration: Callable[[Work], None] = lambda _work: None  # called at the end of each
    now_s: float = 0.0
    energy_j: float = 0.0
    busy_s: float = 0.0
    preemptions: int = 0
    tokens_written: int = 0
    _running: list[_Sequence] = field(default_factory=list)
    _waiting: deque[_Sequence] = field(default_factory=deque)
    _under_way: _Iteration | None = None

    @property
    def in_flight(self) -> int:
        return len(self._running) + len(self._waiting)

    @property
    def waiting(self) -> int:
        """Return the number of sequences that have not begun or were preempted."""
        return len(self._waiting)

    @property
    def cached_tokens(self) -> int:
        return sum(sequence.cached for sequence in self._running)

    @property
    def power_w(self) -> float:
        return self.watts(IDLE if self._under_way is None else self._under_way.work)

    @property
    def next_s(self) -> float:
        if self._under_way is not None:
            return self._under_way.end_s
        return max(self.now_s, self._waiting[0].ready_s) if self._waiting else inf

    def submit(self, key: str, *, prompt_tokens: int, output_tokens: int, loaded_tokens: int = 0) -> None:
        """Add a request.  Raise TooLongError where it does not fit even into an empty cache.

        `loaded_tokens` of the prompt come from a prefix cache or a prefill replica; the last one is always computed.
        """
        needed = prompt_tokens + output_tokens - 1
        if needed > self.costs.cache_tokens:
            raise TooLongError(f"{needed:,} tokens; allowed: at most {self.costs.cache_tokens:,} in this cache")
        ready_s = self.now_s + self.costs.request_s
        self._waiting.append(
            _Sequence(key, prompt_tokens, output_tokens, ready_s, min(loaded_tokens, prompt_tokens - 1))
        )

    def cancel(self, key: str) -> None:
        self._running = [sequence for sequence in self._running if sequence.key != key]
        self._waiting = deque(sequence for sequence in self._waiting if sequence.key != key)

    def retune(self, costs: StepCosts, watts: Callable[[Work], float]) -> None:
        self.costs, self.watts = costs, watts

    def advance(self, until_s: float) -> list[Token]:
        tokens: list[Token] = []
        while True:
            if self._under_way is not None:
                if self._under_way.end_s > until_s:
                    break
                tokens += self._finish(self._under_way)
            if not self._running and (not self._waiting or self._waiting[0].ready_s > until_s):
                break
            if not self._running:
                self._pass(max(self.now_s, self._waiting[0].ready_s))
            self._begin()
        self._pass(max(self.now_s, until_s))
        return tokens

    def _pass(self, to_s: float) -> None:
        passed_s = to_s - self.now_s
        self.energy_j += self.power_w * passed_s
        self.busy_s += passed_s if self._under_way is not None else 0.0
        self.now_s = to_s

    def _begin(self) -> None:
        scheduled = self._schedule()
        decoding = [sequence for sequence, _ in scheduled if sequence.decodes]
        prompts = [(sequence, chunk) for sequence, chunk in scheduled if not sequence.decodes]
        work = Work(decoding=len(decoding), prompt_tokens=sum(chunk for _, chunk in prompts))
        took_s = step_s(
            self.costs,
            decoding=float(work.decoding),
            cached_tokens=float(sum(sequence.cached for sequence in decoding)),
            prompt_tokens=float(work.prompt_tokens),
            pairs=float(sum(chunk * sequence.cached + chunk * (chunk - 1) // 2 for sequence, chunk in prompts)),
        )
        self._under_way = _Iteration(end_s=self.now_s + took_s, taking_part=tuple(scheduled), work=work)

    def _finish(self, iteration: _Iteration) -> list[Token]:
        self._pass(iteration.end_s)
        self._under_way = None
        self.on_iteration(iteration.work)
        here, tokens = set(map(id, self._running)), []
        for sequence, chunk in iteration.taking_part:
            if id(sequence) not in here:
                continue  # cancelled meanwhile
            sequence.cached += chunk
            if sequence.missing == 0:
                sequence.generated += 1
                sequence.decodes = True
                last = sequence.generated == sequence.output_tokens
                tokens.append(Token(sequence.key, self.now_s, sequence.generated - 1, last, sequence.started_s))
        over = {token.key for token in tokens if token.last}
        self._running = [sequence for sequence in self._running if sequence.key not in over]
        self.tokens_written += len(tokens)
        return tokens

    def _schedule(self) -> list[tuple[_Sequence, int]]:
        """Return the sequences of the next iteration, each with its number of tokens."""
        before, budget = self.preemptions, self.costs.chunk_tokens
        scheduled: list[tuple[_Sequence, int]] = []
        free = self.costs.cache_tokens - self.cached_tokens
        for sequence in tuple(self._running):
            chunk = min(sequence.missing, budget)
            while free < chunk and sequence in self._running:
                free += self._preempt_last()
            if chunk == 0 or (self.preemptions > before and sequence not in self._running):
                break
            scheduled.append((sequence, chunk))
            budget, free = budget - chunk, free - chunk
        if self.preemptions == before:
            self._admit(scheduled, budget=budget, free=free)
        return scheduled

    def _admit(self, scheduled: list[tuple[_Sequence, int]], *, budget: int, free: int) -> None:
        while self._waiting and budget > 0 and len(self._running) < self.costs.max_sequences:
            sequence = self._waiting[0]
            if sequence.ready_s > self.now_s or free < sequence.missing:
                return
            self._running.append(self._waiting.popleft())
            sequence.started_s = min(sequence.started_s, self.now_s)
            sequence.cached = sequence.loaded
            chunk = min(sequence.missing, budget)
            scheduled.append((sequence, chunk))
            budget, free = budget - chunk, free - chunk - sequence.loaded

    def _preempt_last(self) -> int:
        """Preempt the last sequence: it keeps its tokens and recomputes them later; its cache is released."""
        sequence = self._running.pop()
        held, sequence.cached, sequence.decodes = sequence.cached, 0, False
        self._waiting.appendleft(sequence)
        self.preemptions += 1
        return held
