"""Joins a Ray cluster as a driver for one command."""

from collections.abc import Iterator
from contextlib import contextmanager

from api.cli.common.errors import input_errors
from deploy.ray_actor.cluster import RayCluster, RayMissingError, join, leave


@contextmanager
def joined(address: str, namespace: str) -> Iterator[RayCluster]:
    """Join in the main thread, where a signal ends the wait for a cluster that does not respond."""
    with input_errors(RayMissingError):
        cluster = join(address, namespace=namespace)
    try:
        yield cluster
    finally:
        leave()
