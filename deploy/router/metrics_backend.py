"""Where counts go: the registry of this process, or, in a replica of Ray Serve, Ray's own metrics.

Serve's replicas come and go, and callers cannot choose one, so nothing could scrape them one by one; Ray's agent on
each node exports what they count (as `ray_NAME`, with tags for application, deployment and replica).
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

Say = Callable[..., None]  # value, then one text per label


class Instruments(Protocol):
    """Makes what is counted with."""

    def counter(self, name: str, text: str, labels: Sequence[str]) -> Say:
        """Adds."""
        ...

    def gauge(self, name: str, text: str, labels: Sequence[str]) -> Say:
        """Sets."""
        ...

    def histogram(self, name: str, text: str, labels: Sequence[str], buckets: Sequence[float]) -> Say:
        """Observes."""
        ...


class OfProcess:
    """On a registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def counter(self, name: str, text: str, labels: Sequence[str]) -> Say:
        """As `prometheus_client` counts."""
        made = Counter(name, text, labels, registry=self._registry)
        of_labels = cache(made.labels)
        return lambda value, *of: (of_labels(*of) if of else made).inc(value)

    def gauge(self, name: str, text: str, labels: Sequence[str]) -> Say:
        """The last value."""
        made = Gauge(name, text, labels, registry=self._registry)
        of_labels = cache(made.labels)
        return lambda value, *of: (of_labels(*of) if of else made).set(value)

    def histogram(self, name: str, text: str, labels: Sequence[str], buckets: Sequence[float]) -> Say:
        """With these upper bounds."""
        made = Histogram(name, text, labels, buckets=buckets, registry=self._registry)
        of_labels = cache(made.labels)
        return lambda value, *of: (of_labels(*of) if of else made).observe(value)


class OfServe:
    """Ray's, in a replica."""

    def __init__(self) -> None:
        from ray.serve import metrics  # noqa: PLC0415 - an extra, and seconds to import

        self._ray: Any = metrics

    def counter(self, name: str, text: str, labels: Sequence[str]) -> Say:
        """Ray refuses to add nothing."""
        made, keys = self._ray.Counter(name, description=text, tag_keys=tuple(labels)), tuple(labels)

        def say(value: float, *of: str) -> None:
            if value > 0.0:
                made.inc(value, tags=dict(zip(keys, of, strict=True)))

        return say

    def gauge(self, name: str, text: str, labels: Sequence[str]) -> Say:
        """The last value."""
        made, keys = self._ray.Gauge(name, description=text, tag_keys=tuple(labels)), tuple(labels)
        return lambda value, *of: made.set(value, tags=dict(zip(keys, of, strict=True)))

    def histogram(self, name: str, text: str, labels: Sequence[str], buckets: Sequence[float]) -> Say:
        """Ray wants bounds above 0."""
        bounds = [bound for bound in buckets if bound > 0.0]
        made = self._ray.Histogram(name, description=text, boundaries=bounds, tag_keys=tuple(labels))
        keys = tuple(labels)
        return lambda value, *of: made.observe(value, tags=dict(zip(keys, of, strict=True)))
