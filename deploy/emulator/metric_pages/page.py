"""A page of metrics of an inference engine: families with fixed names, and the events of requests that change them."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Literal, Protocol

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.utils import floatToGoString

from deploy.emulator.engine import Token, Work

Kind = Literal["counter", "gauge", "histogram"]
FINISHED = "length"  # an emulated response always ends at its token limit
ABORTED = "abort"


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One metric; `name` is that of the page, so a counter's ends in `_total`."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...]
    buckets: tuple[float, ...] = ()


@dataclass(slots=True, kw_only=True)
class RequestRecord:
    """One request of a worker.  Times are model seconds of its engine."""

    prompt_tokens: int
    output_tokens: int
    arrived_s: float
    loaded_tokens: int = 0  # of the prompt: from a prefix cache or a prefill replica
    streamed: bool = False
    started_s: float = inf  # first admission to the batch
    first_token_s: float = inf
    last_token_s: float = inf  # the newest token
    generated: int = 0

    @property
    def ttft_s(self) -> float:
        return self.first_token_s - self.arrived_s

    @property
    def e2e_s(self) -> float:
        return self.last_token_s - self.arrived_s

    @property
    def tpot_s(self) -> float | None:
        """Return the mean time per output token after the first; None for fewer than two tokens."""
        if self.generated < 2:
            return None
        return (self.last_token_s - self.first_token_s) / (self.generated - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineState:
    """The engine at the time of a scrape."""

    now_s: float
    running: int
    waiting: int
    cached_tokens: int
    cache_tokens: int
    preemptions: int


class MetricPage(Protocol):
    """The metrics of one engine process.  A restarted process has a new page, so its counters start at 0."""

    families: Sequence[Family]

    def token(self, request: RequestRecord, token: Token) -> None:
        """Count a token; the record still has the time of the token before."""

    def iteration(self, work: Work) -> None: ...

    def ended(self, request: RequestRecord, *, finished: bool) -> None:
        """Count a request that has all its tokens, or one that was withdrawn."""

    def text(self, state: EngineState) -> bytes:
        """Return the page in Prometheus' text format."""


@dataclass(slots=True)
class _Histogram:
    counts: list[int]
    sum: float = 0.0


@dataclass(slots=True, kw_only=True)
class Series:
    """The series of a page.  `constant` has the labels of every family that declares them."""

    families: Sequence[Family]
    constant: Mapping[str, str]
    _family: dict[str, Family] = field(init=False)
    _numbers: dict[str, dict[tuple[str, ...], float]] = field(init=False)
    _histograms: dict[str, dict[tuple[str, ...], _Histogram]] = field(init=False)

    def __post_init__(self) -> None:
        """Every family without variable labels has its series from the start, as prometheus_client's have."""
        self._family = {family.name: family for family in self.families}
        self._numbers = {family.name: {} for family in self.families if family.kind != "histogram"}
        self._histograms = {family.name: {} for family in self.families if family.kind == "histogram"}
        for family in self.families:
            if set(family.labels) <= self.constant.keys():
                self.add(family.name, 0.0) if family.kind != "histogram" else self.observe(family.name, 0.0, times=0)

    def add(self, name: str, amount: float = 1.0, **labels: str) -> None:
        """Add to a counter or gauge; a family that this version of the engine lacks is ignored."""
        if (series := self._numbers.get(name)) is not None:
            key = self._key(name, labels)
            series[key] = series.get(key, 0.0) + amount

    def set(self, name: str, value: float, **labels: str) -> None:
        if (series := self._numbers.get(name)) is not None:
            series[self._key(name, labels)] = value

    def observe(self, name: str, value: float, *, times: int = 1, **labels: str) -> None:
        if (series := self._histograms.get(name)) is None:
            return
        family, key = self._family[name], self._key(name, labels)
        found = series.get(key)
        if found is None:
            found = series[key] = _Histogram([0] * (len(family.buckets) + 1))
        found.counts[bisect_left(family.buckets, value)] += times
        found.sum += value * times

    def collect(self) -> Iterator[Metric]:
        for family in self.families:
            if family.kind == "histogram":
                histogram = HistogramMetricFamily(family.name, family.help, labels=family.labels)
                for key, found in self._histograms[family.name].items():
                    histogram.add_metric(key, buckets=_cumulative(family, found.counts), sum_value=found.sum)
                yield histogram
                continue
            kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
            metric = kind(family.name, family.help, labels=family.labels)
            for key, value in self._numbers[family.name].items():
                metric.add_metric(key, value)
            yield metric

    def text(self) -> bytes:
        return generate_latest(self)

    def _key(self, name: str, labels: Mapping[str, str]) -> tuple[str, ...]:
        given = {**self.constant, **labels}
        return tuple(given[label] for label in self._family[name].labels)


def _cumulative(family: Family, counts: Iterable[int]) -> list[tuple[str, float]]:
    total, buckets = 0, []
    for bound, count in zip((*family.buckets, inf), counts, strict=True):
        total += count
        buckets.append((floatToGoString(bound), float(total)))  # type: ignore[no-untyped-call]
    return buckets
