"""The elements of a topology document: sites, power domains, switches, nodes.

Each is one flat line that names its parent, so the document of a thousand nodes stays readable and diffs stay small.
`write_out` expands ranges: every element by its own name, with its place in the document.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, Self, TypeVar

from pydantic import Field, model_validator

from fleet.documents import Frozen, Path, RuleError, Violation
from fleet.topology.hostlist import Name, NameSeries, count, expand, expand_all

MAX_RAILS = 64
MAX_UPLINKS = 256


class PowerKind(StrEnum):
    """Levels of a power tree, from the feed down."""

    UPS = "ups"
    PDU = "pdu"
    ROW = "row"
    RACK = "rack"

    @property
    def level(self) -> int:
        """0 at the feed; a domain's parent has the same level (a panel behind a panel) or a lower one."""
        return list(PowerKind).index(self)


class Redundancy(StrEnum):
    """The redundancy of a power domain's feed."""

    NONE = "N"
    TWO_SIDES = "2N"  # two equal sides, either of which carries everything when the other is lost


class Tier(StrEnum):
    """Levels of a switched fabric, from the node up."""

    LEAF = "leaf"
    SPINE = "spine"
    CORE = "core"

    @property
    def level(self) -> int:
        """0 at the leaf."""
        return list(Tier).index(self)


class PowerDomain(Frozen):
    """An element with a breaker: the load below must not exceed its limit."""

    name: NameSeries
    kind: PowerKind
    parent: Name | None = None
    limit_w: float | None = Field(default=None, gt=0, le=1e9)  # None: not known.  With 2N: the limit of one side
    redundancy: Redundancy = Redundancy.NONE
    # Allowed sum of the limits and nameplates below, over limit_w.  1: the breaker holds whatever the load.
    oversubscription: float = Field(default=1.0, ge=1, le=10)


class Switch(Frozen):
    """A switch of the network between nodes, or a range of equal switches."""

    name: NameSeries
    tier: Tier
    rail: int | None = Field(default=None, ge=0, lt=MAX_RAILS)  # of a leaf: the one NIC of each node that it serves
    uplinks: tuple[NameSeries, ...] = ()  # switches one tier above
    links_per_uplink: int = Field(default=1, ge=1, le=256)
    link_gb_per_s: float | None = Field(default=None, gt=0, le=10_000)  # of one uplink, per direction; 50 is 400 Gbit/s

    @model_validator(mode="after")
    def _fits_its_tier(self) -> Self:
        RuleError.raise_for(self._violations())
        return self

    def _violations(self) -> Iterator[Violation]:
        if self.rail is not None and self.tier is not Tier.LEAF:
            yield ("rail",), f"only a leaf serves a rail, this is a {self.tier}"
        if self.uplinks and self.tier is Tier.CORE:
            yield ("uplinks",), "a core switch has no uplinks"
        if sum(map(count, self.uplinks)) > MAX_UPLINKS:
            yield ("uplinks",), f"allowed: at most {MAX_UPLINKS} switches"


class Node(Frozen):
    """A machine, or a range of equal ones in the same place."""

    name: NameSeries
    power_domain: Name | None = None  # the rack; where racks are not distinguished, the row or PDU
    leaves: tuple[NameSeries, ...] = ()  # the leaf of NIC 0, of NIC 1, ...: its rails in order
    gpu: str | None = Field(default=None, min_length=1, max_length=100)  # a name of the GPU catalogue; None: not known
    gpus: int = Field(default=0, ge=0, le=128)
    nominal_w: float | None = Field(default=None, gt=0, le=1e6)  # nameplate of the whole machine
    nic_gb_per_s: float | None = Field(default=None, gt=0, le=10_000)  # of one NIC, per direction
    scale_up_domain: Name | None = None  # nodes that share one NVLink or xGMI fabric, such as an NVL72 rack

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        RuleError.raise_for(self._violations())
        return self

    def _violations(self) -> Iterator[Violation]:
        if self.gpu is not None and self.gpus == 0:
            yield ("gpus",), f"must be 1 to 128 on a node with {self.gpu} GPUs"
        if sum(map(count, self.leaves)) > MAX_RAILS:
            yield ("leaves",), f"allowed: at most {MAX_RAILS} leaves, one per rail"


class Site(Frozen):
    """A building, or a cloud zone."""

    name: Name
    region: str | None = Field(default=None, min_length=1, max_length=100)
    zone: str | None = Field(default=None, min_length=1, max_length=100)
    power: tuple[PowerDomain, ...] = ()
    network: tuple[Switch, ...] = ()
    nodes: tuple[Node, ...] = ()
    total_nodes: int | None = Field(default=None, ge=0)  # if given, must equal what is listed
    total_gpus: int | None = Field(default=None, ge=0)


PartT = TypeVar("PartT", PowerDomain, Switch, Node)


@dataclass(frozen=True, slots=True)
class Placed(Generic[PartT]):
    """One element, the name of its site, and its path in the document."""

    part: PartT
    site: str
    path: Path


@dataclass(frozen=True, slots=True)
class Expansion:
    domains: tuple[Placed[PowerDomain], ...]
    switches: tuple[Placed[Switch], ...]
    nodes: tuple[Placed[Node], ...]


def size(sites: Sequence[Site]) -> int:
    series = (
        series
        for site in sites
        for series in (*(p.name for p in site.power), *(s.name for s in site.network), *(n.name for n in site.nodes))
    )
    return sum(map(count, series))


def write_out(sites: Sequence[Site]) -> Expansion:
    return Expansion(
        domains=tuple(_placed(sites, "power", lambda _domain: {})),
        switches=tuple(_placed(sites, "network", lambda switch: {"uplinks": expand_all(switch.uplinks)})),
        nodes=tuple(_placed(sites, "nodes", lambda node: {"leaves": expand_all(node.leaves)})),
    )


def _placed(sites: Sequence[Site], field: str, expanded: Callable[[Any], dict[str, Any]]) -> Iterator[Placed[Any]]:
    for index, site in enumerate(sites):
        for position, element in enumerate(getattr(site, field)):
            references = expanded(element)
            for name in expand(element.name):
                part = element.model_copy(update={"name": name, **references})
                yield Placed(part, site.name, ("sites", index, field, position))
