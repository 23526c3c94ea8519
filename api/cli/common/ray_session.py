"""Joins a Ray cluster as a driver for one command."""

from collections.abc import Iterator
from contextlib import contextmanager

from api.cli.common.errors import EXIT_BAD_INPUT, CommandError
from deploy.ray_actor.cluster import RayCluster, join, leave
from deploy.ray_actor.interface import RayMissingError


@contextmanager
def joined(address: str, namespace: str) -> Iterator[RayCluster]:
    """Join in the main thread, where a signal ends the wait for a cluster that does not respond."""
    try:
        cluster = join(address, namespace=namespace)
    except RayMissingError as error:
        raise CommandError(str(error), exit_code=EXIT_BAD_INPUT) from error
    try:
        yield cluster
    finally:
        leave()
