"""The servers behind the series of a window: which part each belongs to, and what of the window its scrapes cover."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from planner.demand.profiles import Names
from planner.demand.series import Samples, Series, newest, window_of

ENTIRE = "*"  # the part of series that belong to a target as a whole
# Labels that divide a metric inside one server.
INNER_LABELS = frozenset({"le", "finished_reason", "status", "error_code", "exception_type", "reason", "streaming"})
INNER_LABELS |= {"bucket", "priority", "spilled", "route", "status_code", "outcome", "is_streaming"}
# Labels of the ranks of one replica.
RANK_LABELS = frozenset({"engine", "model_name", "tp_rank", "pp_rank", "dp_rank", "moe_ep_rank", "rank", "pid"})
# Labels that a scraper adds, and that may differ for one server that is read twice.
SCRAPER_LABELS = frozenset(
    {"job", "endpoint", "prometheus", "prometheus_replica", "scrape_job", "service", "container"}
)
SCRAPER_LABELS |= {"receive", "tenant_id", "cluster_replica", "__replica__"}
PREFILL = re.compile(r"[/-]prefill(@[^/]*)?$")  # the end of a part's key
MIN_COVERAGE = 0.5  # of the window by scrapes

LabelPatterns = Mapping[str, str]  # label -> regular expression of the whole value


@dataclass(frozen=True, slots=True)
class Window:
    """(start, end] in Unix time."""

    start_s: float
    end_s: float

    @property
    def length_s(self) -> float:
        return self.end_s - self.start_s


@dataclass(slots=True)
class Replica:
    part: str
    labels: Mapping[str, str]
    series: dict[str, list[Series]] = field(default_factory=lambda: defaultdict(list))

    def named(self, names: Names, suffix: str = "") -> list[Series]:
        """The series under the first name that this replica exports."""
        return next((found for name in names if (found := self.series.get(name + suffix))), [])

    def newest_s(self, end_s: float) -> float:
        times = (newest(each.samples, end_s=end_s) for found in self.series.values() for each in found)
        return max((sample[0] for sample in times if sample is not None), default=float("-inf"))


def find_replicas(series: Iterable[Series], parts: Mapping[str, LabelPatterns], problems: list[str]) -> list[Replica]:
    patterns = {
        part: {label: re.compile(pattern) for label, pattern in labels.items()} for part, labels in parts.items()
    }
    found: dict[tuple[tuple[str, str], ...], Replica] = {}
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
                problems.append(f"series {labels_text(labels)} match {named}; allowed: exactly one part")
            found[key] = Replica(matching[0] if len(matching) == 1 else "", labels)
        found[key].series[each.name].append(each)
    return [replica for replica in found.values() if replica.part]


@dataclass(frozen=True, slots=True)
class Span:
    """The part of a window in which a replica ran, and the time between its first and last scrape."""

    from_s: float
    length_s: float
    covered_s: float
    is_new: bool

    @property
    def factor(self) -> float:
        """From the increase between scrapes to that of the whole part."""
        return self.length_s / self.covered_s if self.covered_s >= MIN_COVERAGE * self.length_s > 0 else 1.0


def span_of(samples: Samples, window: Window) -> Span:
    inside = window_of(samples, start_s=window.start_s, end_s=window.end_s)
    if not inside:
        return Span(window.end_s, 0.0, 0.0, is_new=False)
    first_s, last_s = inside[0][0], inside[-1][0]
    is_new = first_s > window.start_s
    interval_s = (last_s - first_s) / max(1, len(inside) - 1)
    still_runs = len(inside) == 1 or window.end_s - last_s <= 2 * interval_s
    from_s = first_s if is_new else window.start_s
    return Span(from_s, (window.end_s if still_runs else last_s) - from_s, last_s - first_s, is_new)


def server_of(labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The labels of one replica: an engine of several ranks exports one set of series per rank."""
    return tuple(sorted((label, value) for label, value in labels.items() if label not in RANK_LABELS))


def labels_text(labels: Mapping[str, str]) -> str:
    return "{" + ", ".join(f'{label}="{value}"' for label, value in sorted(labels.items()))[:200] + "}"
