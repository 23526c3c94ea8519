"""Leases: who of several processes that could act does.

As in Kubernetes, no clock is compared with another's.  A holder renews; a candidate that has seen the same lease for as
long as it lasts, by its own clock, takes it under the ETag of what it saw.  So two can only both believe to hold it
while the slower clock of the two is wrong by more than the margin that a holder keeps.
"""

from typing import Annotated

from pydantic import Field

from api.schemas.names import Name, Text
from fleet.documents import Frozen

LeaseSeconds = Annotated[float, Field(ge=1.0, le=3600.0)]


class LeaseClaim(Frozen):
    """What a holder says when it takes or renews a lease; without a holder the lease is given back."""

    holder: Text | None = Field(description="Unique to the process: a restart is another holder.")
    lease_s: LeaseSeconds = Field(description="How long the holder may act without renewing.")


class Lease(LeaseClaim):
    """A lease as it stands."""

    name: Name
    term: int = Field(ge=1, description="One more with every change of holder.")
    beats: int = Field(ge=0, description="Renewals in this term.")
