"""What the isolation policy remembers between looks, as one document: its state, the last look, what operators want."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from api.store import IsolationRecord, Transaction, canonical_json
from faults.quarantine import Breaker, IsolationState, NodeRecord, Standing, Wish

KEPT_DECISIONS = 200


@dataclass(frozen=True, slots=True)
class Memory:
    """The document, opened."""

    state: IsolationState = field(default_factory=IsolationState)
    members: frozenset[str] = frozenset()  # of the last look
    wishes: Mapping[str, Wish] = field(default_factory=dict)
    close_breaker: bool = False
    decisions: tuple[Mapping[str, Any], ...] = ()  # newest first, as JSON has them
    record: IsolationRecord | None = None  # where it was read from

    def written(self) -> str:
        """As it is stored."""
        return canonical_json(
            {
                "nodes": {name: record._asdict() for name, record in self.state.nodes.items()},
                "breaker": {"accused_s": dict(self.state.breaker.accused_s), "opened_s": self.state.breaker.opened_s},
                "went_s": self.state.went_s,
                "members": sorted(self.members),
                "wishes": dict(self.wishes),
                "close_breaker": self.close_breaker,
                "decisions": self.decisions[:KEPT_DECISIONS],
            }
        )


async def remembered(tx: Transaction) -> Memory:
    """What is stored; empty before the first look."""
    record = await tx.isolation.get()
    return Memory() if record is None else opened(record)


def opened(record: IsolationRecord) -> Memory:
    """A stored document."""
    found = json.loads(record.body)
    breaker = found["breaker"]
    return Memory(
        state=IsolationState(
            nodes=MappingProxyType({name: _node(each) for name, each in found["nodes"].items()}),
            breaker=Breaker(MappingProxyType(breaker["accused_s"]), breaker["opened_s"]),
            went_s=tuple(found["went_s"]),
        ),
        members=frozenset(found["members"]),
        wishes={name: Wish(wish) for name, wish in found["wishes"].items()},
        close_breaker=found["close_breaker"],
        decisions=tuple(found["decisions"]),
        record=record,
    )


def _node(found: Mapping[str, Any]) -> NodeRecord:
    lists = {key: tuple(found.get(key, ())) for key in ("isolated_s", "domains")}
    return NodeRecord(**{**found, **lists, "standing": Standing(found["standing"])})
