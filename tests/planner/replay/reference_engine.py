"""The reference simulator: the same engine as plain lists, one iteration at a time.

It follows vLLM V1's `schedule()` literally: one list of running requests in order of admission, one queue, one budget,
a cache counted token by token, and per request the number of computed tokens.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from planner.performance.steps import StepCosts, step_s
from planner.replay import Balancing

Size = tuple[float, int, int]  # arrival, input tokens, output tokens


@dataclass(slots=True, eq=False)
class Request:
    """The engine's state of a request."""

    ready_s: float
    input_tokens: int
    output_tokens: int
    carried: bool = False
    computed: int = 0  # tokens in the cache
    generated: int = 0
    decodes: bool = False  # all tokens but the newest are in the cache
    token_times_s: list[float] = field(default_factory=list)

    @property
    def missing(self) -> int:
        return self.input_tokens + self.generated - self.computed


@dataclass(slots=True, eq=False)
class Engine:
    """One replica."""

    costs: StepCosts
    clock_s: float = 0.0
    running: list[Request] = field(default_factory=list)
    waiting: deque[Request] = field(default_factory=deque)
    finished: list[Request] = field(default_factory=list)
    preemptions: int = 0
    iterations: int = 0
    peak_tokens: int = 0
    busy_s: float = 0.0

    def in_flight(self, now_s: float) -> int:
        ending = sum(1 for request in self.finished if request.token_times_s[-1] >= now_s)
        return len(self.running) + len(self.waiting) + ending

    def advance(self, until_s: float) -> None:
        """Run every iteration that begins before this time."""
        while self.clock_s < until_s and (self.running or self.waiting):
            if not self.running and self.waiting[0].ready_s > self.clock_s:
                if self.waiting[0].ready_s >= until_s:
                    return
                self.clock_s = self.waiting[0].ready_s
            self.iterate()

    def iterate(self) -> None:
        scheduled = self.schedule()
        assert scheduled, "an engine with work must get on with it"
        self.peak_tokens = max(self.peak_tokens, self.held() + sum(chunk for _, chunk in scheduled))
        assert self.peak_tokens <= self.costs.cache_tokens
        assert len(self.running) <= self.costs.max_sequences
        assert sum(chunk for _, chunk in scheduled) <= self.costs.chunk_tokens
        took_s = self.time_of(scheduled)
        self.clock_s += took_s
        self.busy_s += took_s
        self.iterations += 1
        for request, chunk in scheduled:
            request.computed += chunk
            if request.missing == 0:
                request.generated += 1
                request.decodes = True
                request.token_times_s.append(self.clock_s)
                if request.generated == request.output_tokens:
                    self.running.remove(request)
                    self.finished.append(request)

    def held(self) -> int:
        return sum(request.computed for request in self.running)

    def schedule(self) -> list[tuple[Request, int]]:
        """Return the requests of the next iteration, each with its number of tokens."""
        scheduled: list[tuple[Request, int]] = []
        budget, preempted = self.costs.chunk_tokens, False

        def free() -> int:
            return self.costs.cache_tokens - self.held() - sum(chunk for _, chunk in scheduled)

        position = 0
        while position < len(self.running) and budget > 0:
            request = self.running[position]
            chunk = min(request.missing, budget)
            while free() < chunk:
                victim = self.running.pop()
                victim.computed, victim.carried, victim.decodes = 0, False, False
                self.waiting.appendleft(victim)
                self.preemptions += 1
                preempted = True
                if victim is request:
                    break
            if request not in self.running:
                break
            scheduled.append((request, chunk))
            budget -= chunk
            position += 1
        while not preempted and self.waiting and budget > 0 and len(self.running) < self.costs.max_sequences:
            request = self.waiting[0]
            if request.ready_s > self.clock_s or free() < request.input_tokens + request.generated:
                break
            self.running.append(self.waiting.popleft())
            if request.carried:
                request.computed = request.input_tokens - 1
            chunk = min(request.missing, budget)
            scheduled.append((request, chunk))
            budget -= chunk
        return scheduled

    def time_of(self, scheduled: Sequence[tuple[Request, int]]) -> float:
        decoding = [request for request, _ in scheduled if request.decodes or request.carried]
        prompts = [(request, chunk) for request, chunk in scheduled if request not in decoding]
        return step_s(
            self.costs,
            decoding=float(len(decoding)),
            cached_tokens=float(sum(request.computed for request in decoding)),
            prompt_tokens=float(sum(chunk for _, chunk in prompts)),
            pairs=float(sum(request.computed + token for request, chunk in prompts for token in range(chunk))),
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """The results of the requests, in the given order."""

    first_s: list[float]
    finish_s: list[float]
    tokens: list[int]
    engines: list[Engine]


def simulate(
    sizes: Sequence[Size], costs: StepCosts, *, replicas: int, balancing: Balancing, carried: bool = False
) -> Outcome:
    """Requests in order of arrival over equal replicas."""
    assert balancing is not Balancing.POWER_OF_TWO, "draws at random"
    engines = [Engine(costs) for _ in range(replicas)]
    requests: list[Request] = []
    turn = 0
    for arrival_s, input_tokens, output_tokens in sizes:
        order = [(turn + offset) % replicas for offset in range(replicas)]
        for engine in engines:
            engine.advance(arrival_s)
        if balancing is Balancing.MIN_REQUESTS:
            order.sort(key=lambda r: engines[r].in_flight(arrival_s))
        turn = (order[0] + 1) % replicas
        ready_s = arrival_s if carried else arrival_s + costs.request_s
        requests.append(Request(ready_s, input_tokens, output_tokens, carried))
        engines[order[0]].waiting.append(requests[-1])
    for engine in engines:
        engine.advance(float("inf"))
    return Outcome(
        [request.token_times_s[0] for request in requests],
        [request.token_times_s[-1] for request in requests],
        [len(request.token_times_s) for request in requests],
        engines,
    )
