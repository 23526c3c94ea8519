"""Leases elect a leader among several processes.

As in Kubernetes, nobody compares clocks of two machines.  A holder renews.  A candidate that observes the same lease
for its whole duration, by its own clock, takes it with the ETag of that lease.  Two processes can consider themselves
the holder at the same time only if the slower clock is wrong by more than the margin that a holder keeps.
"""

from typing import Annotated

from pydantic import Field

from api.schemas.names import Name, Text
from fleet.documents import Frozen

LeaseSeconds = Annotated[float, Field(ge=1.0, le=3600.0)]


class LeaseClaim(Frozen):
    """The holder of a lease that is taken or renewed; without a holder the lease is released."""

    holder: Text | None = Field(description="Unique to the process: a restart is another holder.")
    lease_s: LeaseSeconds = Field(description="How long the holder may act without renewing.")


class Lease(LeaseClaim):
    """The current state of a lease."""

    name: Name
    term: int = Field(ge=1, description="Increases with every change of holder.")
    beats: int = Field(ge=0, description="Renewals in this term.")
