"""What a healer tells of itself.  Cases are told by the service, which has those of all healers."""

from collections.abc import Callable
from datetime import datetime
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from deploy.remediation.hooks import HOOKS

ACTS: Final = ("drain", "end-workers", "probe", *(f"hook-{hook}" for hook in HOOKS))
# A round is some calls of Ray and of the service, waits for acts at most its patience, and is cut off at its timeout.
_ROUND_BUCKETS_S: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class HealerMetrics:
    """Of one healer, on the registry of whoever serves it."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._leads = Gauge(
            "fleetwright_healer_leads", "Whether this healer holds the lease: 1 or 0.", registry=registry
        )
        self._rounds = Counter(
            "fleetwright_healer_rounds",
            "Rounds of the leader; failed: Ray or the service did not answer, or a case was not carried on.",
            ["outcome"],
            registry=registry,
        )
        self._round_seconds = Histogram(
            "fleetwright_healer_round_seconds",
            "Time of a round; acts that take longer than its patience go on beside the next ones.",
            buckets=_ROUND_BUCKETS_S,
            registry=registry,
        )
        self._last_round = Gauge(
            "fleetwright_healer_last_round_timestamp_seconds",
            "When the last round that went well ended, in Unix time; 0: none has.",
            registry=registry,
        )
        self._acts = Counter(
            "fleetwright_healer_acts",
            "Acts that came to an end; each may be taken more than once in a case.",
            ["act", "outcome"],
            registry=registry,
        )
        self._watched = Gauge(
            "fleetwright_healer_runs_watched", "Training runs that this healer has under watch.", registry=registry
        )
        for outcome in ("ok", "failed"):  # or the first one of a kind would be no increase
            self._rounds.labels(outcome)
            for act in ACTS:
                self._acts.labels(act, outcome)

    def led_by(self, holds: Callable[[], bool]) -> None:
        """Whom to ask, at each scrape, whether it is this one's to act."""
        self._leads.set_function(lambda: float(holds()))

    def watching(self, count: Callable[[], int]) -> None:
        """Whom to ask, at each scrape, how many runs are under watch."""
        self._watched.set_function(lambda: float(count()))

    def round_ended(self, *, ok: bool, duration_s: float, at: datetime) -> None:
        """A round is over."""
        self._rounds.labels("ok" if ok else "failed").inc()
        self._round_seconds.observe(duration_s)
        if ok:
            self._last_round.set(at.timestamp())

    def acted(self, act: str, *, ok: bool) -> None:
        """An act came to its end."""
        self._acts.labels(act, "ok" if ok else "failed").inc()
