"""A slow simulator of the same row in plain Python, independent of the engine.

It uses lists and scans, and counts down the remaining work of each request.  It supports scripted settings only,
without brake and faults.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf, isnan, nan

from power.controls import Clocks, Phase, Priority, Setting
from power.server_model import ServerModel
from power.workload import TrainingJob, Work

WINDOW_S = 2.0
FULL = Clocks()


@dataclass(eq=False)
class Request:
    arrival_s: float
    prompt_tokens: int
    tokens_left: float
    held_since_s: float = nan
    start_s: float = nan
    first_s: float = nan
    finish_s: float = nan


@dataclass(eq=False)
class Server:
    model: ServerModel
    priority: Priority
    bias: float
    clocks: Clocks = FULL
    sent: Clocks = FULL
    wanted: Clocks = FULL
    due_s: float = inf
    asleep: bool = False
    wakes_in_s: float = inf
    reading: Request | None = None
    prompt_left_s: float = 0.0
    writing: list[Request] = field(default_factory=list)

    @property
    def phase(self) -> Phase:
        if self.reading:
            return Phase.PROMPT
        if self.writing:
            return Phase.TOKEN
        return Phase.PARKED if self.asleep and self.wakes_in_s == inf else Phase.IDLE

    @property
    def free(self) -> bool:
        return not self.asleep and self.reading is None

    def clock(self) -> float:
        return self.clocks.of(self.priority, self.phase)

    def watts(self) -> float:
        return self.model.watts(self.phase, self.clock(), max(1, len(self.writing)))

    def next_s(self) -> float:
        if self.reading:
            return self.prompt_left_s * self.model.prompt_slowdown(self.clock())
        if self.writing:
            token_s = self.model.token_time_s(len(self.writing), self.clock())
            return token_s * min(each.tokens_left for each in self.writing)
        return self.wakes_in_s

    def live(self, span_s: float) -> None:
        if self.reading:
            self.prompt_left_s -= span_s / self.model.prompt_slowdown(self.clock())
        elif self.writing:
            token_s = self.model.token_time_s(len(self.writing), self.clock())
            for each in self.writing:
                each.tokens_left -= span_s / token_s
        elif self.wakes_in_s < inf:
            self.wakes_in_s -= span_s


@dataclass
class Job:
    about: TrainingJob
    servers: list[Server]
    computes: bool = False
    left_s: float = 0.0
    iterations: int = 0

    def pace(self) -> float:
        return min(server.clocks.training for server in self.servers) if self.computes else 1.0

    def watts(self, server: Server, *, computes: bool) -> float:
        job = self.about
        rise_w = (job.compute_w - job.trough_w) * server.clocks.training**job.clock_exponent
        return job.trough_w + (rise_w if computes else 0.0)


class Oracle:
    """One run."""

    def __init__(
        self,
        work: Work,
        model: ServerModel,
        *,
        biases: list[float],
        script: Callable[[float], Setting],
        command_delay_s: float,
        telemetry_delay_s: float = 2.0,
        smoothing: float = 0.1,
        patience_s: float = 10.0,
        limit: int | None = None,
    ) -> None:
        left = iter(biases)
        self.work, self.script, self.command_delay_s = work, script, command_delay_s
        self.delay = int(telemetry_delay_s / WINDOW_S)
        self.smoothing, self.patience_s = smoothing, patience_s
        self.most = model.most_together if limit is None else min(limit, model.most_together)
        self.pools = [[Server(model, pool.priority, next(left)) for _ in range(pool.servers)] for pool in work.pools]
        self.jobs = [
            Job(job, [Server(model, Priority.LOW, next(left)) for _ in range(job.servers)], left_s=job.start_s)
            for job in work.jobs
        ]
        self.requests = [
            [
                Request(float(work.arrival_s[at]), int(work.prompt_tokens[at]), float(work.output_tokens[at]))
                for at in range(len(work.arrival_s))
                if work.pool[at] == p
            ]
            for p in range(len(work.pools))
        ]
        self.coming = [list(requests) for requests in self.requests]
        self.queues: list[list[Request]] = [[] for _ in work.pools]
        self.begun: set[int] = set()
        self.setting, self.now_s, self.ratio = Setting(), 0.0, 1.0
        self.readings: list[float] = []
        self.modelled: list[float] = []

    def run(self) -> None:
        while len(self.readings) * WINDOW_S < self.work.duration_s:
            self._window()
            if len(self.readings) > self.delay:
                at = len(self.readings) - 1 - self.delay
                self.ratio += self.smoothing * (self.readings[at] / self.modelled[at] - self.ratio)
            self._park()
            self._dispatch()
            if len(self.readings) > self.delay:
                self._decide()

    def _window(self) -> None:
        end_s, true_j, modelled_j = WINDOW_S * (len(self.readings) + 1), 0.0, 0.0
        while True:
            span_s = min(self._next_s(), end_s - self.now_s)
            true_j += span_s * sum(watts * bias for watts, bias in self._watts())
            modelled_j += span_s * sum(watts for watts, _ in self._watts())
            for server in self._all():
                server.live(span_s)
            for at, job in enumerate(self.jobs):
                job.left_s -= span_s * (job.pace() if at in self.begun else 1.0)
            self.now_s += span_s
            if end_s - self.now_s < 1e-9:
                self.now_s = end_s
                break
            self._process_events()
            self._dispatch()
        self.readings.append(true_j / WINDOW_S)
        self.modelled.append(modelled_j / WINDOW_S)

    def _all(self) -> list[Server]:
        return [server for pool in self.pools for server in pool]

    def _all_with_training(self) -> list[Server]:
        return self._all() + [server for job in self.jobs for server in job.servers]

    def _watts(self) -> list[tuple[float, float]]:
        found = [(server.watts(), server.bias) for server in self._all()]
        for at, job in enumerate(self.jobs):
            for server in job.servers:
                watts = job.watts(server, computes=job.computes) if at in self.begun else server.model.idle_w
                found.append((watts, server.bias))
        return found

    def _next_s(self) -> float:
        """Seconds until the next event."""
        waits = [coming[0].arrival_s - self.now_s for coming in self.coming if coming]
        waits += [server.next_s() for server in self._all()]
        waits += [server.due_s - self.now_s for server in self._all_with_training()]
        waits += [job.left_s / (job.pace() if at in self.begun else 1.0) for at, job in enumerate(self.jobs)]
        return max(0.0, min(waits))

    def _process_events(self) -> None:
        for coming, queue in zip(self.coming, self.queues, strict=True):
            while coming and coming[0].arrival_s <= self.now_s + 1e-9:
                queue.append(coming.pop(0))
        for server in self._all_with_training():
            if server.due_s <= self.now_s + 1e-9:
                server.clocks, server.due_s = server.sent, inf
                if self._controls(server, server.wanted) != self._controls(server, server.sent):
                    self._send(server)
        for server in self._all():
            self._work(server)
        for at, job in enumerate(self.jobs):
            if job.left_s <= 1e-9:
                about = job.about
                job.iterations += at in self.begun and not job.computes
                job.computes = at not in self.begun or not job.computes
                share = about.compute_share if job.computes else 1 - about.compute_share
                job.left_s = about.iteration_s * share
                self.begun.add(at)

    def _work(self, server: Server) -> None:
        if server.next_s() > 1e-9:
            return
        if server.reading:
            server.reading.first_s = self.now_s
            server.writing.append(server.reading)
            server.reading = None
        elif server.writing:
            for each in [each for each in server.writing if each.tokens_left < 1e-7]:
                each.finish_s = self.now_s
                server.writing.remove(each)
        else:
            server.asleep, server.wakes_in_s = False, inf

    def _decide(self) -> None:
        setting = self.script(self.now_s)
        if setting.clocks != self.setting.clocks:
            for server in self._all_with_training():
                server.wanted = setting.clocks
                if server.due_s == inf:
                    self._send(server)
        self.setting = setting

    def _send(self, server: Server) -> None:
        server.sent, server.due_s = server.wanted, self.now_s + self.command_delay_s

    def _controls(self, server: Server, clocks: Clocks) -> tuple[float, ...]:
        """The clocks that apply to the server."""
        if any(server in job.servers for job in self.jobs):
            return (clocks.training,)
        return clocks.of(server.priority, Phase.TOKEN), clocks.of(server.priority, Phase.PROMPT)

    def _modelled_w(self) -> float:
        """The modelled power of the row with all training in its compute phase."""
        training_w = 0.0
        for job in self.jobs:
            training_w += sum(job.watts(server, computes=True) for server in job.servers)
        return sum(server.watts() for server in self._all()) + training_w

    def _dispatch(self) -> None:
        for priority in (Priority.HIGH, Priority.LOW):
            for at, pool in enumerate(self.work.pools):
                while pool.priority == priority and self.queues[at]:
                    server, request = self._choose(at), self.queues[at][0]
                    if server is None:
                        break
                    if not self._admitted(server, request):
                        if isnan(request.held_since_s):
                            request.held_since_s = self.now_s
                        break
                    server.reading = self.queues[at].pop(0)
                    server.prompt_left_s = server.model.prompt_time_s(request.prompt_tokens)
                    request.start_s = self.now_s

    def _choose(self, at: int) -> Server | None:
        routing, priority = self.setting.routing, self.work.pools[at].priority
        together = routing.high_together if priority else routing.low_together
        free = [server for server in self.pools[at] if server.free]
        idle = [server for server in free if not server.writing]
        joined = [server for server in free if 0 < len(server.writing) < min(together, self.most)]
        if joined:
            return max(joined, key=lambda server: len(server.writing))
        if idle:
            return idle[0]
        crowded = [server for server in free if len(server.writing) < self.most]
        return min(crowded, key=lambda server: len(server.writing), default=None)

    def _admitted(self, server: Server, request: Request) -> bool:
        patient = isnan(request.held_since_s) or self.now_s - request.held_since_s < self.patience_s
        low = server.priority is Priority.LOW and patient
        hold_w = self.setting.low_limit_w if low else self.setting.high_limit_w
        clock = server.clocks.of(server.priority, Phase.PROMPT)
        step_w = server.model.prompt_w(clock) - server.watts()
        return self.ratio * (self._modelled_w() + step_w) <= hold_w

    def _park(self) -> None:
        for at, pool in enumerate(self.pools):
            allowed = int(self.setting.routing.parked_share * len(pool))
            asleep = [server for server in pool if server.phase is Phase.PARKED]
            if not allowed and not asleep:
                continue
            waking = sum(server.asleep for server in pool) - len(asleep)
            stuck = bool(self.queues[at]) and self._choose(at) is None
            surplus = max(len(asleep) - allowed, len(self.queues[at]) - waking if stuck else 0)
            for server in asleep[: max(0, surplus)]:
                server.wakes_in_s = server.model.wake_s
            if self.queues[at]:
                continue
            for server in reversed(pool):
                if sum(each.phase is Phase.PARKED for each in pool) >= allowed:
                    break
                if server.phase is Phase.IDLE and not server.asleep:
                    server.asleep = True
