"""Probes: the health metrics of a target's application and their limits."""

from typing import Annotated

from pydantic import AfterValidator, Field, HttpUrl, StringConstraints, model_validator

from fleet.documents import Frozen, RuleError

Query = Annotated[str, StringConstraints(min_length=1, max_length=2_000, pattern=r"^[^\x00-\x08\x0b-\x1f\x7f]+$")]
Seconds = Annotated[float, Field(ge=0.0, le=86_400.0)]


def _required_exactly_with(url: HttpUrl) -> HttpUrl:
    if url.username or url.password or url.query or url.fragment:
        raise RuleError([((), "allowed: http(s)://HOST[:PORT][/PATH], without user, query or fragment")])
    return url


PlainUrl = Annotated[HttpUrl, AfterValidator(_required_exactly_with)]


class HealthProbe(Frozen):
    """Prometheus queries over the application's metrics, each with its maximum."""

    prometheus_url: PlainUrl = Field(description="The server of `/api/v1/query`.")
    error_rate_query: Query | None = Field(default=None, description="Share of failed requests, 0 to 1.")
    max_error_rate: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
    latency_query: Query | None = Field(default=None, description="Latency in seconds.")
    max_latency_s: Annotated[float, Field(gt=0.0, le=86_400.0)] | None = None
    judge_after_s: Seconds = Field(default=120.0, description="From a write to the first health check.")
    max_age_s: Annotated[float, Field(ge=1.0, le=86_400.0)] = Field(
        default=120.0, description="Values older than this count as missing."
    )

    @model_validator(mode="after")
    def _each_query_has_its_limit(self) -> "HealthProbe":
        violations = [
            ((limit,), f"is required with {query}, and only with it")
            for query, limit in (("error_rate_query", "max_error_rate"), ("latency_query", "max_latency_s"))
            if (getattr(self, query) is None) != (getattr(self, limit) is None)
        ]
        if self.error_rate_query is None and self.latency_query is None:
            violations.append((("error_rate_query",), "is required where latency_query is not given"))
        RuleError.raise_for(violations)
        return self
