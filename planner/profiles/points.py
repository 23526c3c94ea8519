"""Measured points: one run of a serving benchmark on one replica, and the document of many runs.

A point states the configuration, the request size, the load (an offered rate, or a number in flight), the completed
requests per second and the latencies.  Latencies are in milliseconds; TPOT is without the first token.  `Profiles` is
Fleetwright's own format, as YAML or JSON; `own_csv` reads and writes the same as a table.
"""

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from fleet.catalogues import Name
from fleet.documents import Frozen, RuleError, Violation
from fleet.gpus import GpuCatalogue, unknown_gpus
from fleet.slo import MAX_LIMIT_MS, PERCENTILES, Metric, Statistic

MAX_POINTS = 100_000

Ms = Annotated[float, Field(gt=0, le=MAX_LIMIT_MS)]
Tokens = Annotated[float, Field(ge=1, le=100_000_000)]
Rps = Annotated[float, Field(gt=0, le=1e6)]
Degree = Annotated[int, Field(ge=1, le=1024)]
ShortText = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^\S(.*\S)?$")]


class Latency(Frozen):
    """One metric at the recorded statistics."""

    mean: Ms | None = None
    p50: Ms | None = None
    p90: Ms | None = None
    p95: Ms | None = None
    p99: Ms | None = None

    def at(self, statistic: Statistic) -> float | None:
        """The statistic, or the next higher percentile, which is at least as much; None without a record."""
        found: float | None = getattr(self, statistic)
        if found is not None or statistic is Statistic.MEAN:
            return found
        higher = PERCENTILES[PERCENTILES.index(statistic) + 1 :]
        return next((value for each in higher if (value := getattr(self, each)) is not None), None)

    @property
    def known(self) -> bool:
        return any(getattr(self, statistic) is not None for statistic in Statistic)

    @model_validator(mode="after")
    def _percentiles_rise(self) -> Self:
        RuleError.raise_for(self._falling())
        return self

    def _falling(self) -> Iterator[Violation]:
        highest = 0.0
        for statistic in PERCENTILES:
            value = getattr(self, statistic)
            if value is not None and value < highest:
                yield (str(statistic),), f"{value:g} is below a lower percentile, expected at least {highest:g}"
            highest = max(highest, value or 0.0)


@dataclass(frozen=True, slots=True, order=True)
class Configuration:
    """The key of a table of rates: a model on a replica, with one version of one engine."""

    model: str
    gpu: str
    tensor_parallel: int
    pipeline_parallel: int
    data_parallel: int
    expert_parallel: int
    precision: str
    engine: str
    engine_version: str

    @property
    def gpus(self) -> int:
        return self.tensor_parallel * self.pipeline_parallel * self.data_parallel

    def __str__(self) -> str:
        degrees = (("pp", self.pipeline_parallel), ("dp", self.data_parallel), ("ep", self.expert_parallel))
        beyond = "".join(f" {prefix}{degree}" for prefix, degree in degrees if degree > 1)
        ran = " ".join(prefix for prefix in (self.precision, self.engine, self.engine_version) if prefix)
        return f"{self.model} on {self.gpu} tp{self.tensor_parallel}{beyond}{f' ({ran})' if ran else ''}"


class MeasuredPoint(Frozen):
    """One run."""

    model: Name
    gpu: Name
    tensor_parallel: Degree = 1
    pipeline_parallel: Degree = 1
    data_parallel: Degree = 1
    expert_parallel: Degree = Field(default=1, description="Experts spread over this many of the replica's own GPUs.")
    precision: ShortText | None = None
    engine: ShortText | None = None
    engine_version: ShortText | None = None
    input_tokens: Tokens = Field(description="Mean per request.")
    output_tokens: Tokens = Field(description="Mean per request.")
    offered_rps: Rps | None = Field(default=None, description="Rate of sending, independent of completions.")
    concurrency: Annotated[float, Field(gt=0, le=1e6)] | None = Field(
        default=None, description="Requests kept in flight; with offered_rps, the number observed."
    )
    achieved_rps: Rps = Field(description="Requests completed per second by the whole replica.")
    ttft_ms: Latency = Latency()
    tpot_ms: Latency = Latency()
    e2e_ms: Latency = Latency()
    requests: Annotated[int, Field(ge=1)] | None = None
    failed: Annotated[int, Field(ge=0)] = 0
    date: dt.date | None = None
    source: ShortText

    @property
    def configuration(self) -> Configuration:
        values: dict[str, Any] = {each.name: getattr(self, each.name) or "" for each in fields(Configuration)}
        return Configuration(**values)

    def latency(self, metric: Metric) -> Latency:
        found: Latency = getattr(self, metric)
        return found

    @model_validator(mode="after")
    def _has_load_and_latency(self) -> Self:
        RuleError.raise_for(self._violations())
        return self

    def _violations(self) -> Iterator[Violation]:
        if self.offered_rps is None and self.concurrency is None:
            yield (), "give offered_rps, concurrency or both: how hard the replica was pressed"
        if not any(self.latency(metric).known for metric in Metric):
            yield (), f"gives no latency, expected at least one of {', '.join(Metric)} at one of {', '.join(Statistic)}"


class Profiles(Frozen):
    """The document: points, in any order."""

    points: Annotated[tuple[MeasuredPoint, ...], Field(max_length=MAX_POINTS)]

    def with_points(self, points: Iterable[MeasuredPoint]) -> Self:
        return type(self)(points=tuple(dict.fromkeys((*self.points, *points))))

    def configurations(self) -> dict[Configuration, int]:
        return dict(sorted(Counter(point.configuration for point in self.points).items()))

    def of(self, configuration: Configuration) -> tuple[MeasuredPoint, ...]:
        return tuple(point for point in self.points if point.configuration == configuration)

    def unknown_gpus(self, gpus: GpuCatalogue) -> Iterator[Violation]:
        """The names that the catalogue lacks, each with the nearest known name."""
        mentions: list[Violation] = [(("points", n, "gpu"), point.gpu) for n, point in enumerate(self.points)]
        return unknown_gpus(mentions, gpus)
