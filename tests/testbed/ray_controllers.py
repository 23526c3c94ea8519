"""Runs controllers as detached actors of a real Ray cluster; the test run joins it as a driver."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from deploy.common.leader_election import LeaseRole
from deploy.ray_actor.cluster import RayCluster, join, leave
from deploy.ray_actor.lifecycle import Lifecycle, ListedController, Timeouts
from deploy.ray_actor.messages import ControllerReport
from tests.testbed.waiting import PATIENCE_S, wait_for

NAME: Final = "controller"
NAMESPACE: Final = "fleetwright"


@contextmanager
def joined_cluster(address: str) -> Iterator[RayCluster]:
    """Join the cluster as a driver."""
    try:
        yield join(address, namespace=NAMESPACE)
    finally:
        leave()


@contextmanager
def conducting(joined: RayCluster) -> Iterator[Lifecycle]:
    """Provide the commands with longer timeouts; at the end remove all controllers."""
    conductor = Lifecycle(joined, timeouts=Timeouts(up_s=PATIENCE_S, reply_s=PATIENCE_S))
    try:
        yield conductor
    finally:
        conductor.stop(NAME)


def leader(
    conductor: Lifecycle, condition: Callable[[ControllerReport], object] = bool
) -> tuple[ListedController, ControllerReport]:
    """Wait until the only controller is the leader and satisfies `condition`."""

    def leads(there: list[ListedController]) -> object:
        report = there[0].report if len(there) == 1 else None  # a stopped controller may still be listed for a moment
        return report is not None and report.role == LeaseRole.LEADER and condition(report)

    (one,) = wait_for(conductor.listing, leads, what="leading controller")
    assert one.report is not None
    return one, one.report
