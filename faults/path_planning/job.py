"""The traffic of a job as a document: rings, connections per neighbour, demand, bonds, dead links.

Read with `fleet.documents.read_model`; example: examples/training-job.yaml, fields:
docs/explanation/faults/path-planning.md.
"""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Annotated, Self

from pydantic import Field, IPvAnyAddress, StringConstraints, model_validator

from fleet.documents import Frozen, RuleError, Violation
from fleet.topology.hostlist import Name, NameSeries

MAX_CONNECTIONS = 32  # per neighbour; collective libraries advise against more than 8

Member = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*(:[0-9]{1,2})?$", max_length=200)]


class Ring(Frozen):
    """NICs in ring order, each sending to the next.  `node` means its NIC 0; otherwise `node:nic`."""

    name: Name
    members: tuple[Member, ...] = Field(min_length=2, max_length=65_536)


class Group(Frozen):
    """Nodes in ring order; one ring per NIC is made from them."""

    name: Name
    nodes: tuple[NameSeries, ...] = Field(min_length=1, max_length=65_536)
    nics: tuple[Annotated[int, Field(ge=0, lt=64)], ...] | None = None  # None: all NICs of the first node


class Cable(Frozen):
    """A link between two switches, both directions."""

    lower: Name
    upper: Name
    cable: int | None = Field(default=None, ge=0, lt=256)  # number among the parallel cables, from 0; None: all of them


class TrafficJob(Frozen):
    """The senders, receivers and demand of a job."""

    name: Name
    rings: tuple[Ring, ...] = ()
    groups: tuple[Group, ...] = ()
    both_ways: bool = False  # every ring also runs backwards
    connections: int = Field(default=1, ge=1, le=MAX_CONNECTIONS)  # queue pairs to a neighbour, unless split further
    most_connections: int = Field(default=16, ge=1, le=MAX_CONNECTIONS)
    nic_share: float = Field(default=1.0, gt=0, le=1)  # share of a NIC that a ring needs per direction
    gb_per_s: float | None = Field(default=None, gt=0, le=10_000)  # an absolute value instead of the share
    bonds: tuple[
        tuple[Annotated[int, Field(ge=0, lt=64)], ...], ...
    ] = ()  # positions in a node's leaves: the ports of one NIC
    dead: tuple[Cable, ...] = ()
    addresses: Mapping[Member, IPvAnyAddress] = Field(default_factory=dict)  # of NICs, written like members

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        RuleError.raise_for(self._violations())
        return self

    def _violations(self) -> Iterator[Violation]:
        if not self.rings and not self.groups:
            yield ("rings",), "is empty and so is groups, expected at least one ring or group"
        if self.most_connections < self.connections:
            yield ("most_connections",), f"must be {self.connections} (connections) to {MAX_CONNECTIONS}"
        names = [*(ring.name for ring in self.rings), *(group.name for group in self.groups)]
        for name in dict.fromkeys(name for name in names if names.count(name) > 1):
            yield ("rings",), f"{name!r} is the name of more than one ring or group"
        positions = list(chain.from_iterable(self.bonds))
        if len(positions) != len(set(positions)):
            yield ("bonds",), "a leaf is a port of more than one NIC"
        for index, bond in enumerate(self.bonds):
            if len(bond) < 2:  # a NIC of one port needs no entry
                yield ("bonds", index), "expected the positions of at least two leaves"
