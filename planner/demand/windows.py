"""The demand of one window, from the series of one source.

Replicas are distinguished by all labels but those that divide a metric inside one server.  Each replica belongs to the
part whose labels match; none or two matching parts make the window unusable, and so do missing, stale, reset, repeated
or contradictory series: `problems` names them, and a planner must not act on such a window.

A server counts requests when they end, which undercounts the demand while queues grow.  So arrivals are completions
plus the growth of the requests that run or wait.  A rate is over the time that the scrapes of a replica cover; a window
that they cover by less than half is not usable.  Where prefill and decode are parts of their own, both count a request:
the requests are those of the other parts, and prefill replicas determine the time to the first token.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import sqrt

from planner.demand.checks import (
    expected_servers,
    missing_replicas,
    missing_series,
    no_samples,
    repeated_servers,
    uncovered_servers,
)
from planner.demand.density import Density, estimate_density
from planner.demand.profiles import Names, Profile
from planner.demand.replicas import PREFILL, LabelPatterns, Replica, Window, find_replicas, server_of, span_of
from planner.demand.series import (
    HistogramIncreases,
    Increase,
    Series,
    histogram_increases,
    increase,
    joined,
    newest,
    window_of,
)

CONTRADICTION = 0.1  # of the larger of two counts of the same requests
FLOOR_TOKENS = 0.5
FLOOR_OF_EDGE = 0.25  # lower end of the first bucket of a latency, of its edge
MAX_PROBLEMS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PartTraffic:
    replicas: int  # that exported samples
    completions_rps: float
    ttft_s: Density | None = None
    tpot_s: Density | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DemandWindow:
    window: Window
    arrivals_rps: float = 0.0
    completions_rps: float = 0.0
    requests: float = 0.0  # that ended
    input_tokens: Density | None = None
    output_tokens: Density | None = None
    ttft_s: Density | None = None
    tpot_s: Density | None = None
    running: float | None = None
    queued: float | None = None
    kv_usage: float | None = None
    prefix_hit_rate: float | None = None
    error_rate: float | None = None
    parts: Mapping[str, PartTraffic] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    @property
    def is_usable(self) -> bool:
        return not self.problems


def read_window(
    series: Iterable[Series],
    *,
    window: Window,
    profile: Profile,
    parts: Mapping[str, LabelPatterns],
    max_age_s: float,
    expected_replicas: Mapping[str, int] | None = None,
) -> DemandWindow:
    """Read one window.  `expected_replicas` are those that run, part by part, and must therefore export samples."""
    problems: list[str] = []
    replicas = find_replicas(series, parts, problems)
    live = [replica for replica in replicas if window.end_s - replica.newest_s(window.end_s) <= max_age_s]
    if not live:
        problems.append(no_samples(replicas, window=window, max_age_s=max_age_s))
        return DemandWindow(window=window, problems=tuple(problems[:MAX_PROBLEMS]))
    problems += missing_replicas(live, parts, expected_servers(expected_replicas or {}, parts, profile))
    problems += missing_series(live, profile)
    problems += repeated_servers(live)
    problems += uncovered_servers(live, profile, window)
    reader = _Reader(replicas, live, profile, window)
    problems += reader.contradictions()
    found = reader.demand()
    problems += reader.problems
    return replace(found, problems=tuple(dict.fromkeys(problems))[:MAX_PROBLEMS])


def disagreement(windows: Sequence[DemandWindow], *, tolerance: float) -> str | None:
    """How two sources of one target contradict each other; None if the difference is within counting noise."""
    first = windows[0]
    for position, other in enumerate(windows[1:], start=2):
        larger, smaller = sorted((first.arrivals_rps, other.arrivals_rps), reverse=True)
        requests = larger * first.window.length_s
        noise = 3 * sqrt(requests) / requests if requests > 0 else 0.0
        if larger > 0 and (larger - smaller) / larger > tolerance + noise:
            return (
                f"source 1 counts {first.arrivals_rps:.3g} requests/s and source {position} {other.arrivals_rps:.3g}; "
                f"allowed: a difference of {tolerance:.0%}"
            )
    return None


@dataclass(slots=True)
class _Reader:
    replicas: Sequence[Replica]
    live: Sequence[Replica]
    profile: Profile
    window: Window
    problems: list[str] = field(default_factory=list)

    @property
    def answering(self) -> Sequence[Replica]:
        """The replicas that complete requests: all but prefill replicas beside decode replicas."""
        return [replica for replica in self.replicas if not PREFILL.search(replica.part)] or self.replicas

    @property
    def starting(self) -> Sequence[Replica]:
        """The replicas that produce first tokens."""
        return [replica for replica in self.replicas if PREFILL.search(replica.part)] or self.replicas

    def demand(self) -> DemandWindow:
        profile, length_s = self.profile, self.window.length_s
        ended = self._counter(profile.finished, self.answering)
        growth = self._growth(profile.queued) if profile.counts != "arrivals" else 0.0
        growth += self._growth(profile.running) if profile.counts == "ends" else 0.0
        if ended.resets:
            self.problems.append(f"reset: {ended.resets} falls of {profile.finished[0]} in the window")
        return DemandWindow(
            window=self.window,
            arrivals_rps=max(0.0, ended.amount + growth) / length_s,
            completions_rps=ended.amount / length_s,
            requests=ended.amount,
            input_tokens=self._density(profile.input_tokens, floor=FLOOR_TOKENS, replicas=self.answering),
            output_tokens=self._density(profile.output_tokens, floor=FLOOR_TOKENS, replicas=self.answering),
            ttft_s=self._density(profile.ttft_s, replicas=self.starting),
            tpot_s=self._density(profile.tpot_s, replicas=self.answering),
            running=self._gauge(profile.running),
            queued=self._gauge(profile.queued),
            kv_usage=self._mean_gauge(profile.kv_usage),
            prefix_hit_rate=self._hit_rate(),
            error_rate=self._failed(ended.amount),
            parts={part: self._part(part) for part in sorted({replica.part for replica in self.live})},
        )

    def contradictions(self) -> Iterator[str]:
        """Counts of the same requests that differ."""
        if self.profile.counts != "ends":
            return
        ended = self._counter(self.profile.finished, self.answering, scaled=False).amount
        for names in (self.profile.input_tokens, self.profile.output_tokens):
            if (found := self._histogram(names, self.answering)) is not None:
                larger = max(ended, found.requests)
                if abs(ended - found.requests) > 3 + CONTRADICTION * larger:
                    yield (
                        f"contradictory: {self.profile.finished[0]} counts {ended:.0f} requests and {names[0]} "
                        f"{found.requests:.0f}"
                    )

    def _part(self, part: str) -> PartTraffic:
        replicas = [replica for replica in self.replicas if replica.part == part]
        return PartTraffic(
            replicas=len({server_of(replica.labels) for replica in self.live if replica.part == part}),
            completions_rps=self._counter(self.profile.finished, replicas).amount / self.window.length_s,
            ttft_s=self._density(self.profile.ttft_s, replicas=replicas),
            tpot_s=self._density(self.profile.tpot_s, replicas=replicas),
        )

    def _counter(
        self,
        names: Names,
        replicas: Sequence[Replica] | None = None,
        *,
        scaled: bool = True,
        only: Callable[[Series], bool] = lambda _series: True,
    ) -> Increase:
        """The increase of all replicas in the window; `scaled` from the time that scrapes cover to the whole."""
        found = Increase()
        for replica in self.replicas if replicas is None else replicas:
            for each in filter(only, replica.named(names)):
                one = increase(each.samples, start_s=self.window.start_s, end_s=self.window.end_s)
                factor = span_of(each.samples, self.window).factor if scaled else 1.0
                found += Increase(one.amount * factor, one.resets)
        return found

    def _failed(self, ended: float) -> float | None:
        failing = self.profile.failed_labels
        if failing is not None:
            failed = self._counter(
                self.profile.finished,
                self.answering,
                only=lambda series: any(series.labels.get(label) in values for label, values in failing.items()),
            )
        elif self.profile.failed:
            failed = self._counter(self.profile.failed, self.answering)
        else:
            return None
        return min(1.0, failed.amount / ended) if ended > 0 else None

    def _histogram(self, names: Names, replicas: Sequence[Replica] | None = None) -> HistogramIncreases | None:
        found = [
            increases
            for replica in (self.replicas if replicas is None else replicas)
            if (
                increases := histogram_increases(
                    replica.named(names, "_bucket"),
                    replica.named(names, "_sum"),
                    start_s=self.window.start_s,
                    end_s=self.window.end_s,
                )
            )
            is not None
        ]
        try:
            return joined(found)
        except ValueError as error:
            self.problems.append(f"contradictory: {names[0]}: {error}")
            return None

    def _density(
        self, names: Names, *, floor: float | None = None, replicas: Sequence[Replica] | None = None
    ) -> Density | None:
        if not names or (found := self._histogram(names, replicas)) is None:
            return None
        floor = found.edges[0] * FLOOR_OF_EDGE if floor is None else floor
        return estimate_density(found.edges, counts=found.counts, sums=found.sums, floor=floor)

    def _growth(self, names: Names) -> float:
        """Of a gauge, from the first to the last scrape of the window, over the replicas that are still there."""
        growth = 0.0
        for replica in self.live:
            for each in replica.named(names):
                inside = window_of(each.samples, start_s=self.window.start_s, end_s=self.window.end_s)
                growth += inside[-1][1] - inside[0][1] if inside else 0.0
        return growth

    def _gauge(self, names: Names) -> float | None:
        values = self._gauge_values(names)
        return sum(values) if values else None

    def _mean_gauge(self, names: Names) -> float | None:
        values = self._gauge_values(names)
        return min(1.0, max(0.0, sum(values) / len(values))) if values else None

    def _gauge_values(self, names: Names) -> list[float]:
        series = (each for replica in self.live for each in replica.named(names))
        found = (newest(each.samples, end_s=self.window.end_s) for each in series)
        return [sample[1] for sample in found if sample is not None]

    def _hit_rate(self) -> float | None:
        if not self.profile.prefix_queries:
            return self._mean_gauge(self.profile.prefix_hit_rate)
        queries = self._counter(self.profile.prefix_queries).amount
        return min(1.0, self._counter(self.profile.prefix_hits).amount / queries) if queries > 0 else None
