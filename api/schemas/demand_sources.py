"""Demand sources: where the traffic of a target is read.

A source yields the requests, sizes and latencies of each part of a target, from the metrics of its engines, of a
frontend or router before them, or from a log of requests.  `parts` states which series belong to which part: a series
that matches no part, or two, is an error.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StringConstraints, ValidationInfo, model_validator

from api.schemas.kinds import validate_by_kind
from api.schemas.names import Name, PartKey
from api.schemas.probes import PlainUrl
from fleet.documents import Frozen, RuleError

LabelName = Annotated[str, StringConstraints(max_length=200, pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$")]
LabelValue = Annotated[str, StringConstraints(max_length=500, pattern=r"^[^\x00-\x1f\x7f]*$")]
Labels = Annotated[dict[LabelName, LabelValue], Field(max_length=20)]
LogName = Annotated[str, StringConstraints(max_length=200, pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]*$")]
ENTIRE = "*"  # key of `parts` for series that belong to the target as a whole


class MetricsProfile(StrEnum):
    """The names under which a server exports its traffic (`planner.demand.profiles`)."""

    VLLM = "vllm"
    SGLANG = "sglang"
    TENSORRT_LLM = "tensorrt-llm"
    TRITON = "triton"
    DYNAMO = "dynamo"
    RAY_SERVE = "ray-serve"
    INFERENCE_GATEWAY = "inference-gateway"
    ROUTER = "router"


class LogFormat(StrEnum):
    """A log with one JSON object per line."""

    ACCESS = "access"  # time, input_tokens, output_tokens, ttft_s, duration_s, status
    OPENTELEMETRY = "opentelemetry"  # spans with the attributes gen_ai.*


class PrometheusDemand(Frozen):
    """Series in a Prometheus server, or in another server with its query API."""

    kind: Literal["prometheus"] = "prometheus"
    url: PlainUrl = Field(description="The server of `/api/v1/query`.")
    profile: MetricsProfile
    selector: Labels = Field(
        default_factory=dict,
        description="Label -> regular expression of the whole value; other series are not read.",
    )
    parts: dict[PartKey, Labels] = Field(
        min_length=1,
        max_length=100,
        description="Part -> labels of its series, as in `selector`; part `*`: the target as a whole.",
    )
    credentials: Name | None = Field(
        default=None, description="Name of a file in the controller's folder of credentials; null: none."
    )
    max_age_s: Annotated[float, Field(ge=1.0, le=3_600.0)] = Field(
        default=90.0, description="A series whose last sample is older is stale."
    )


class EngineMetricsDemand(Frozen):
    """Metrics pages that the controller reads itself."""

    kind: Literal["engine_metrics"] = "engine_metrics"
    profile: MetricsProfile
    parts: dict[PartKey, Annotated[tuple[PlainUrl, ...], Field(min_length=1, max_length=1_000)]] = Field(
        min_length=1, max_length=100, description="Part -> pages of its replicas; `*`: the target as a whole."
    )
    max_age_s: Annotated[float, Field(ge=1.0, le=3_600.0)] = Field(
        default=90.0, description="A page whose last answer is older is stale."
    )

    @model_validator(mode="after")
    def _each_page_once(self) -> "EngineMetricsDemand":
        part_of: dict[PlainUrl, str] = {}
        for part, pages in self.parts.items():
            for position, page in enumerate(pages):
                if (other := part_of.setdefault(page, part)) != part:
                    raise RuleError([(("parts", part, position), f"{page} is already a page of {other}")])
        return self


class RequestLogDemand(Frozen):
    """A file to which a gateway or a collector appends one line per request, in the controller's folder of logs."""

    kind: Literal["request_log"] = "request_log"
    file: LogName = Field(description="Name of a file in the controller's folder of logs.")
    format: LogFormat = LogFormat.ACCESS
    selector: Labels = Field(
        default_factory=dict,
        description="Field -> regular expression of the whole value; other lines are not read.",
    )
    max_age_s: Annotated[float, Field(ge=1.0, le=3_600.0)] = Field(
        default=300.0, description="Without a newer line the log is stale."
    )


_KINDS: Mapping[str, type[Frozen]] = {
    "prometheus": PrometheusDemand,
    "engine_metrics": EngineMetricsDemand,
    "request_log": RequestLogDemand,
}


def _of_its_kind(value: Any, info: ValidationInfo) -> Any:
    return validate_by_kind(value, info, kinds=_KINDS)


Source = Annotated[PrometheusDemand | EngineMetricsDemand | RequestLogDemand, BeforeValidator(_of_its_kind)]


class DemandSources(Frozen):
    """The sources of a target's demand.  The first is planned with; the others must agree with it."""

    sources: tuple[Source, ...] = Field(min_length=1, max_length=4)
    tolerance: Annotated[float, Field(gt=0.0, le=1.0)] = Field(
        default=0.15,
        description="Allowed difference of the sources' rates, as a share of the larger.",
    )
