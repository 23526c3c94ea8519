"""What makes the series of a window unusable: missing, stale and repeated servers, and scrapes that are too sparse."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from planner.demand.profiles import Profile
from planner.demand.replicas import (
    ENTIRE,
    MIN_COVERAGE,
    SCRAPER_LABELS,
    Replica,
    Window,
    labels_text,
    server_of,
    span_of,
)


def no_samples(replicas: Collection[Replica], *, window: Window, max_age_s: float) -> str:
    if not replicas:
        return "missing: no series of this target"
    age_s = window.end_s - max(replica.newest_s(window.end_s) for replica in replicas)
    return f"stale: the newest sample is {age_s:.0f} s old; allowed: at most {max_age_s:g} s"


def expected_servers(running: Mapping[str, int], parts: Collection[str], profile: Profile) -> Mapping[str, int]:
    """Replicas that must export samples, by part; a frontend or router exports its own, whatever runs behind it."""
    if not profile.is_engine:
        return {}
    return {ENTIRE: sum(running.values())} if set(parts) == {ENTIRE} else running


def missing_replicas(live: Collection[Replica], parts: Iterable[str], expected: Mapping[str, int]) -> Iterator[str]:
    servers: dict[str, set[tuple[tuple[str, str], ...]]] = defaultdict(set)
    for replica in live:
        servers[replica.part].add(server_of(replica.labels))
    for part in parts:
        if (wanted := expected.get(part, 0)) > (there := len(servers.get(part, ()))):
            of_part = "" if part == ENTIRE else f" of {part}"
            yield f"missing: {there} of {wanted} running replicas{of_part} export samples"


def missing_series(live: Collection[Replica], profile: Profile) -> Iterator[str]:
    """Metrics of the profile that no live replica exports; latencies, cache metrics and some sizes may be absent."""
    needed = {"finished": profile.finished, "running": profile.running, "queued": profile.queued}
    for names in needed.values():
        if names and not any(replica.named(names) for replica in live):
            yield f"missing: no series {' or '.join(names)}"
    for names in (profile.input_tokens, profile.output_tokens) if profile.has_sizes else ():
        if names and not any(replica.named(names, "_bucket") for replica in live):
            yield f"missing: no series {' or '.join(f'{name}_bucket' for name in names)}"


def repeated_servers(live: Sequence[Replica]) -> Iterator[str]:
    """Servers that are read twice: labels that differ only in what a scraper adds."""
    first_of: dict[tuple[tuple[str, str], ...], Replica] = {}
    for replica in live:
        own = tuple(sorted((label, value) for label, value in replica.labels.items() if label not in SCRAPER_LABELS))
        if (other := first_of.setdefault(own, replica)) is not replica:
            yield f"repeated: {labels_text(replica.labels)} and {labels_text(other.labels)} are the same server"


def uncovered_servers(live: Sequence[Replica], profile: Profile, window: Window) -> Iterator[str]:
    """Replicas whose scrapes do not cover the window; a replica may be new, but not all of them."""
    spans = [
        (replica, span_of(each.samples, window)) for replica in live for each in replica.named(profile.finished)[:1]
    ]
    if spans and all(span.is_new for _, span in spans):
        begin_s = min(span.from_s for _, span in spans) - window.start_s
        yield f"missing: the samples begin {begin_s:.0f} s after the start of the window"
        return
    sparse = [replica for replica, span in spans if span.covered_s < MIN_COVERAGE * span.length_s]
    if sparse:
        yield (
            f"missing: the scrapes of {len(sparse)} servers, such as {labels_text(sparse[0].labels)}, cover less than "
            "half of the window; choose a window_s of several scrape intervals"
        )
