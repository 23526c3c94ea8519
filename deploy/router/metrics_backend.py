"""Where metrics go: the registry of this process, or, in a Ray Serve replica, Ray's own metrics.

A scraper cannot select one replica of Serve, so Ray's agent on each node exports their metrics (as `ray_NAME`, with
tags for application, deployment and replica).
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

Say = Callable[..., None]  # value, then one value per label


class MetricsBackend(Protocol):
    """Creates metrics."""

    def counter(self, name: str, text: str, labels: Sequence[str]) -> Say:
        """Return a function that adds to a counter."""
        ...

    def gauge(self, name: str, text: str, labels: Sequence[str]) -> Say:
        """Return a function that sets a gauge."""
        ...

    def histogram(self, name: str, text: str, labels: Sequence[str], buckets: Sequence[float]) -> Say:
        """Return a function that observes a value."""
        ...


class PrometheusBackend:
    """Metrics of a `prometheus_client` registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def counter(self, name: str, text: str, labels: Sequence[str]) -> Say:
        made = Counter(name, text, labels, registry=self._registry)
        of_labels = cache(made.labels)
        return lambda value, *of: (of_labels(*of) if of else made).inc(value)

    def gauge(self, name: str, text: str, labels: Sequence[str]) -> Say:
        made = Gauge(name, text, labels, registry=self._registry)
        of_labels = cache(made.labels)
        return lambda value, *of: (of_labels(*of) if of else made).set(value)

    def histogram(self, name: str, text: str, labels: Sequence[str], buckets: Sequence[float]) -> Say:
        """Return a histogram with these upper bounds."""
        made = Histogram(name, text, labels, buckets=buckets, registry=self._registry)
        of_labels = cache(made.labels)
        return lambda value, *of: (of_labels(*of) if of else made).observe(value)


class RayServeBackend:
    """Ray's metrics in a replica."""

    def __init__(self) -> None:
        from ray.serve import metrics  # noqa: PLC0415 - an extra, and seconds to import

        self._ray: Any = metrics

    def counter(self, name: str, text: str, labels: Sequence[str]) -> Say:
        """Return a counter; Ray refuses an increase of 0."""
        made, keys = self._ray.Counter(name, description=text, tag_keys=tuple(labels)), tuple(labels)

        def add(value: float, *of: str) -> None:
            if value > 0.0:
                made.inc(value, tags=dict(zip(keys, of, strict=True)))

        return add

    def gauge(self, name: str, text: str, labels: Sequence[str]) -> Say:
        made, keys = self._ray.Gauge(name, description=text, tag_keys=tuple(labels)), tuple(labels)
        return lambda value, *of: made.set(value, tags=dict(zip(keys, of, strict=True)))

    def histogram(self, name: str, text: str, labels: Sequence[str], buckets: Sequence[float]) -> Say:
        """Return a histogram; Ray requires bounds above 0."""
        bounds = [bound for bound in buckets if bound > 0.0]
        made = self._ray.Histogram(name, description=text, boundaries=bounds, tag_keys=tuple(labels))
        keys = tuple(labels)
        return lambda value, *of: made.observe(value, tags=dict(zip(keys, of, strict=True)))
