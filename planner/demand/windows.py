"""The demand of one window, from the series of one source.

Replicas are distinguished by all labels but those that divide a metric inside one server.  Each replica belongs to the
part whose labels match; none or two matching parts make the window unusable, and so do missing, stale, reset, repeated
or contradictory series: `problems` names them, and a planner must not act on such a window.

A server counts requests when they end, which undercounts the demand while queues grow.  So arrivals are completions
plus the growth of the requests that run or wait.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import sqrt

from planner.demand.density import Density, estimate_density
from planner.demand.profiles import Names, Profile
from planner.demand.series import HistogramIncreases, Increase, Series, histogram_increases, increase, joined, newest

ENTIRE = "*"  # the part of series that belong to a target as a whole
# Labels that divide a metric inside one server.
INNER_LABELS = frozenset({"le", "finished_reason", "status", "error_code", "exception_type", "reason", "streaming"})
INNER_LABELS |= {"bucket", "priority", "spilled", "route", "status_code", "outcome"}
# Labels that a scraper adds, and that may differ for one server that is read twice.
SCRAPER_LABELS = frozenset({"job", "endpoint", "prometheus", "prometheus_replica", "replica", "scrape_job"})
SAME_COUNTS = 20  # requests: two servers that served as many have not the same sums by chance
CONTRADICTION = 0.1  # of the larger of two counts of the same requests
FLOOR_TOKENS = 0.5
FLOOR_OF_EDGE = 0.25  # lower end of the first bucket of a latency, of its edge
MAX_PROBLEMS = 20

LabelPatterns = Mapping[str, str]  # label -> regular expression of the whole value


@dataclass(frozen=True, slots=True)
class Window:
    """(start, end] in Unix time."""

    start_s: float
    end_s: float

    @property
    def length_s(self) -> float:
        return self.end_s - self.start_s


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


@dataclass(slots=True)
class _Replica:
    part: str
    labels: Mapping[str, str]
    series: dict[str, list[Series]] = field(default_factory=lambda: defaultdict(list))

    def named(self, names: Names, suffix: str = "") -> list[Series]:
        """The series under the first name that this replica exports."""
        return next((found for name in names if (found := self.series.get(name + suffix))), [])

    def newest_s(self, end_s: float) -> float:
        times = (newest(each.samples, end_s=end_s) for found in self.series.values() for each in found)
        return max((sample[0] for sample in times if sample is not None), default=float("-inf"))


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
    replicas = _replicas(series, parts, problems)
    live = [replica for replica in replicas if window.end_s - replica.newest_s(window.end_s) <= max_age_s]
    problems += _missing_replicas(replicas, live, parts, expected_replicas or {}, window=window, max_age_s=max_age_s)
    if not live:
        return DemandWindow(window=window, problems=tuple(problems[:MAX_PROBLEMS]))
    problems += _missing_series(live, profile)
    problems += _repeated(live, profile, window)
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


def _replicas(series: Iterable[Series], parts: Mapping[str, LabelPatterns], problems: list[str]) -> list[_Replica]:
    patterns = {
        part: {label: re.compile(pattern) for label, pattern in labels.items()} for part, labels in parts.items()
    }
    found: dict[tuple[tuple[str, str], ...], _Replica] = {}
    for each in series:
        labels = {label: value for label, value in each.labels.items() if label not in INNER_LABELS}
        key = tuple(sorted(labels.items()))
        if key not in found:
            matching = [
                part
                for part, wanted in patterns.items()
                if all(pattern.fullmatch(labels.get(label, "")) for label, pattern in wanted.items())
            ]
            if len(matching) != 1:
                named = " and ".join(matching) or "no part"
                problems.append(f"series {_text(labels)} match {named}; allowed: exactly one part")
            found[key] = _Replica(matching[0] if len(matching) == 1 else "", labels)
        found[key].series[each.name].append(each)
    return [replica for replica in found.values() if replica.part]


def _missing_replicas(
    replicas: Collection[_Replica],
    live: Collection[_Replica],
    parts: Mapping[str, LabelPatterns],
    expected: Mapping[str, int],
    *,
    window: Window,
    max_age_s: float,
) -> Iterator[str]:
    if not replicas:
        yield "missing: no series of this target"
        return
    if not live:
        age_s = window.end_s - max(replica.newest_s(window.end_s) for replica in replicas)
        yield f"stale: the newest sample is {age_s:.0f} s old; allowed: at most {max_age_s:g} s"
        return
    servers: dict[str, set[tuple[tuple[str, str], ...]]] = defaultdict(set)
    for replica in live:
        servers[replica.part].add(_server(replica.labels))
    for part in parts:
        if (wanted := expected.get(part, 0)) > (there := len(servers.get(part, ()))):
            yield f"missing: {there} of {wanted} running replicas of {part} export samples"


def _missing_series(live: Collection[_Replica], profile: Profile) -> Iterator[str]:
    """Metrics of the profile that no live replica exports; latencies and cache metrics may be absent."""
    needed = {"finished": profile.finished, "running": profile.running, "queued": profile.queued}
    for names in needed.values():
        if names and not any(replica.named(names) for replica in live):
            yield f"missing: no series {' or '.join(names)}"
    for names in (profile.input_tokens, profile.output_tokens):
        if names and not any(replica.named(names, "_bucket") for replica in live):
            yield f"missing: no series {' or '.join(f'{name}_bucket' for name in names)}"


def _repeated(live: Sequence[_Replica], profile: Profile, window: Window) -> Iterator[str]:
    """Servers that are read twice: the same counters under other labels."""
    first_of: dict[tuple[float, ...], _Replica] = {}
    for replica in live:
        ends = [
            sample[1]
            for names, suffix in ((profile.input_tokens, "_sum"), (profile.ttft_s, "_sum"), (profile.finished, ""))
            for each in replica.named(names, suffix)
            if (sample := newest(each.samples, end_s=window.end_s)) is not None
        ]
        counted = sum(
            sample[1]
            for each in replica.named(profile.finished)
            if (sample := newest(each.samples, end_s=window.end_s)) is not None
        )
        if counted < SAME_COUNTS or len(ends) < 2:
            continue
        other = first_of.setdefault(tuple(sorted(ends)), replica)
        if other is not replica and _without_scraper(other.labels) == _without_scraper(replica.labels):
            yield f"repeated: {_text(replica.labels)} and {_text(other.labels)} are the same server"


@dataclass(slots=True)
class _Reader:
    replicas: Sequence[_Replica]
    live: Sequence[_Replica]
    profile: Profile
    window: Window
    problems: list[str] = field(default_factory=list)

    def demand(self) -> DemandWindow:
        profile, length_s = self.profile, self.window.length_s
        ended = self._counter(profile.finished)
        growth = 0.0 if profile.counts_arrivals else self._growth(profile.running) + self._growth(profile.queued)
        if ended.resets:
            self.problems.append(f"reset: {ended.resets} falls of {profile.finished[0]} in the window")
        return DemandWindow(
            window=self.window,
            arrivals_rps=max(0.0, ended.amount + growth) / length_s,
            completions_rps=ended.amount / length_s,
            requests=ended.amount,
            input_tokens=self._density(profile.input_tokens, floor=FLOOR_TOKENS),
            output_tokens=self._density(profile.output_tokens, floor=FLOOR_TOKENS),
            ttft_s=self._density(profile.ttft_s),
            tpot_s=self._density(profile.tpot_s),
            running=self._gauge(profile.running),
            queued=self._gauge(profile.queued),
            kv_usage=self._mean_gauge(profile.kv_usage),
            prefix_hit_rate=self._hit_rate(),
            error_rate=self._failed(ended.amount),
            parts={part: self._part(part) for part in sorted({replica.part for replica in self.live})},
        )

    def contradictions(self) -> Iterator[str]:
        """Counts of the same requests that differ."""
        if self.profile.counts_arrivals:
            return
        ended = self._counter(self.profile.finished).amount
        for names in (self.profile.input_tokens, self.profile.output_tokens):
            if (found := self._histogram(names)) is not None:
                larger = max(ended, found.requests)
                if abs(ended - found.requests) > 3 + CONTRADICTION * larger:
                    yield (
                        f"contradictory: {self.profile.finished[0]} counts {ended:.0f} requests and {names[0]} "
                        f"{found.requests:.0f}"
                    )

    def _part(self, part: str) -> PartTraffic:
        replicas = [replica for replica in self.replicas if replica.part == part]
        return PartTraffic(
            replicas=len({_server(replica.labels) for replica in self.live if replica.part == part}),
            completions_rps=self._counter(self.profile.finished, replicas).amount / self.window.length_s,
            ttft_s=self._density(self.profile.ttft_s, replicas=replicas),
            tpot_s=self._density(self.profile.tpot_s, replicas=replicas),
        )

    def _counter(self, names: Names, replicas: Sequence[_Replica] | None = None) -> Increase:
        series = (each for replica in replicas or self.replicas for each in replica.named(names))
        return sum(
            (increase(each.samples, start_s=self.window.start_s, end_s=self.window.end_s) for each in series),
            start=Increase(),
        )

    def _failed(self, ended: float) -> float | None:
        profile, failed = self.profile, 0.0
        if profile.failed_labels is not None:
            for replica in self.replicas:
                for each in replica.named(profile.finished):
                    if any(each.labels.get(label) in values for label, values in profile.failed_labels.items()):
                        failed += increase(each.samples, start_s=self.window.start_s, end_s=self.window.end_s).amount
        elif profile.failed:
            failed = self._counter(profile.failed).amount
        else:
            return None
        return min(1.0, failed / ended) if ended > 0 else None

    def _histogram(self, names: Names, replicas: Sequence[_Replica] | None = None) -> HistogramIncreases | None:
        found = [
            increases
            for replica in replicas or self.replicas
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
        self, names: Names, *, floor: float | None = None, replicas: Sequence[_Replica] | None = None
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
                before, after = (newest(each.samples, end_s=at) for at in (self.window.start_s, self.window.end_s))
                if after is not None:
                    growth += after[1] - (before[1] if before is not None else 0.0)
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


def _server(labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The labels of one replica: an engine of several data-parallel ranks exports one set of series per rank."""
    return tuple(sorted((label, value) for label, value in labels.items() if label not in ("engine", "model_name")))


def _without_scraper(labels: Mapping[str, str]) -> Mapping[str, str]:
    return {label: value for label, value in labels.items() if label not in SCRAPER_LABELS}


def _text(labels: Mapping[str, str]) -> str:
    return "{" + ", ".join(f'{label}="{value}"' for label, value in sorted(labels.items()))[:200] + "}"
