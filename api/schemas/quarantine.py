"""Isolation on the wire: what a controller sees of the fleet, what is wanted of it, and where every node stands."""

from datetime import datetime
from typing import Annotated

from pydantic import AwareDatetime, Field

from api.schemas.faults import DomainLabel, NodeName
from faults.quarantine import Act, IsolationRules, Member, Mode, Standing, Wish
from fleet.documents import Frozen

MAX_MEMBERS = 20_000

Moment = datetime | None


class StoredRules(Frozen):
    """The rules in force, with their version; 0 is what ships."""

    version: int = Field(ge=0)
    rules: IsolationRules


class SeenMember(Frozen):
    """A node as the controller sees it."""

    pool: DomainLabel = "default"
    domains: Annotated[tuple[DomainLabel, ...], Field(max_length=16)] = Field(
        default=(), description="Whatever fails as one: rack, leaf, power domain."
    )
    absent: bool = Field(default=False, description="Takes no work for a reason that is not ours.")

    @property
    def member(self) -> Member:
        """As the policy has it."""
        return Member(self.pool, self.domains, self.absent)


class ProbeEnd(Frozen):
    """How a probe that was wanted ended."""

    ended_at: AwareDatetime
    passed: bool


class Look(Frozen):
    """One look at the fleet.  Verdicts that are believed, and what operators want, the service adds."""

    members: dict[NodeName, SeenMember] = Field(min_length=1, max_length=MAX_MEMBERS)
    spares: dict[DomainLabel, Annotated[int, Field(ge=0, le=1_000_000)]] = Field(
        default_factory=dict, max_length=1000, description="Per pool: nodes that could take over, counted now."
    )
    probed: dict[NodeName, ProbeEnd] = Field(
        default_factory=dict,
        max_length=MAX_MEMBERS,
        description="The last probe of a node.  One that ended before it was wanted counts for nothing.",
    )


class Decided(Frozen):
    """One decision of the policy, with its reason."""

    at: datetime
    act: Act
    node: str | None
    reason: str
    accusation: str | None = Field(default=None, description="Id of the verdict it rests on.")
    dry_run: bool


class LookOutcome(Frozen):
    """What shall be so, whatever is so now."""

    at: datetime
    mode: Mode
    frozen: bool = Field(description="While the freeze holds nothing new is wanted, and nothing is decided.")
    out: tuple[str, ...] = Field(description="Nodes that shall take no work.")
    probe: tuple[str, ...] = Field(description="Nodes that shall be probed.")
    decisions: tuple[Decided, ...]


class WishRequest(Frozen):
    """What an operator wants of a node.  It is done at the next look."""

    wish: Wish


class NodeView(Frozen):
    """Where a node stands, and how it came there."""

    node: str
    standing: Standing
    since: datetime
    dry_run: bool = Field(description="It would be out; it is not.")
    accusation: str | None = Field(description="Id of the verdict that it is accused by, or went for.")
    accused_since: Moment
    refused: str | None = Field(description="The last rule that said no.")
    strikes: tuple[datetime, ...]
    probes_passed: int
    probes_failed: int
    probe_at: Moment
    wish: Wish | None = Field(description="What an operator wants and the next look will do.")


class BreakerView(Frozen):
    """Whether too many were accused together."""

    opened_at: Moment = Field(description="Null: it is closed.")
    accused: tuple[str, ...]
    close_wanted: bool


class IsolationView(Frozen):
    """The whole memory of the policy."""

    looked_at: Moment = Field(description="Null: no controller has looked yet.")
    looked_by: str | None
    mode: Mode
    frozen: bool
    fleet: int = Field(description="Nodes in the last look.")
    out: tuple[str, ...]
    probe: tuple[str, ...]
    breaker: BreakerView
    nodes: tuple[NodeView, ...] = Field(description="Nodes with a story; all others serve.")
    decisions: tuple[Decided, ...] = Field(description="The newest first.")
