"""What the policy remembers, of each node and of the fleet."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple


class Standing(StrEnum):
    """Where a node stands.  Serving nodes are not written down unless they have strikes."""

    SERVING = "serving"
    SUSPECT = "suspect"
    PROPOSED = "proposed"
    ISOLATED = "isolated"
    PROBING = "probing"
    WATCHED = "watched"
    KEPT_OUT = "kept-out"


OUT = frozenset((Standing.ISOLATED, Standing.PROBING, Standing.KEPT_OUT))


class NodeRecord(NamedTuple):
    """One node's story so far."""

    standing: Standing = Standing.SERVING
    since_s: float = 0.0  # of the standing
    accusation: str | None = None  # what it is accused of now, or went for
    accused_s: float = 0.0  # since when without a break
    dry_run: bool = False  # it would be out; it is not
    isolated_s: tuple[float, ...] = ()  # strikes
    passed: int = 0  # probes in a row
    failed: int = 0
    probe_at_s: float = 0.0
    refused: str | None = None  # the last rule that said no, so that it is told once
    declined: str | None = None  # the accusation for which an operator would not let it go
    answered: str | None = None  # the accusation that it went for and came back from
    pool: str | None = None  # of a node that is out: what lacks it, also while the fleet does not show it
    domains: tuple[str, ...] = ()


class Breaker(NamedTuple):
    """Who was accused with cause of late, and whether that was too many."""

    accused_s: Mapping[str, float] = MappingProxyType({})  # per node: when last
    opened_s: float | None = None

    @property
    def open(self) -> bool:
        return self.opened_s is not None


@dataclass(frozen=True, slots=True)
class IsolationState:
    """The whole memory; plain values, so that it can be stored and read back."""

    nodes: Mapping[str, NodeRecord] = field(default_factory=lambda: MappingProxyType({}))
    breaker: Breaker = field(default_factory=Breaker)
    went_s: tuple[float, ...] = ()  # isolations within the rate's window

    def out(self) -> frozenset[str]:
        """Nodes that take no work because of us, or would not but for the dry run."""
        return frozenset(name for name, record in self.nodes.items() if record.standing in OUT)
