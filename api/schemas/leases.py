"""Leases elect a leader among several processes.

As in Kubernetes, nobody compares clocks of two machines.  A holder renews.  A candidate that observes the same lease
for its whole duration, by its own clock, takes it with the ETag of that lease.  Two processes can consider themselves
the holder at the same time only if the slower clock is wrong by more than the margin that a holder keeps.
"""

from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import Field

from api.schemas.names import Name, Text
from fleet.documents import Frozen

LEASE_HEADER: Final = "Fleetwright-Lease"
LEASE_TERM_PATTERN: Final = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?/[1-9][0-9]{0,8}$"
CONTROLLER_LEASE: Final = "controller"
REMEDIATION_LEASE: Final = "remediation"
HEALTH_EVENTS_LEASE: Final = "health-events"
POWER_CHECK_LEASE: Final = "power-check"

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


@dataclass(frozen=True, slots=True)
class LeaseTerm:
    """Names a term of a lease.  Controllers send theirs with each report, so that reports of older terms are refused.

    In a header, because a service of release 0.2.0 refuses bodies with unknown fields.
    """

    lease: str
    term: int

    def __str__(self) -> str:
        return f"{self.lease}/{self.term}"

    @classmethod
    def parse(cls, text: str) -> "LeaseTerm":
        """Read the value of the header, which matches `LEASE_TERM_PATTERN`."""
        lease, _, term = text.partition("/")
        return cls(lease, int(term))
