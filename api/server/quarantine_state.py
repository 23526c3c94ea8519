"""Stores the quarantine policy's state in one document, with the last evaluation and pending actions."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from api.store import QuarantineRecord, Transaction, canonical_json
from faults.quarantine import CircuitBreaker, NodeRecord, NodeState, OperatorAction, QuarantineState

KEPT_DECISIONS = 200


@dataclass(frozen=True, slots=True)
class StoredState:
    """Is the parsed document."""

    state: QuarantineState = field(default_factory=QuarantineState)
    members: frozenset[str] = frozenset()  # of the last evaluation
    operator_actions: Mapping[str, OperatorAction] = field(default_factory=dict)
    reset_breaker: bool = False
    decisions: tuple[Mapping[str, Any], ...] = ()  # newest first, as JSON
    record: QuarantineRecord | None = None  # the stored row

    def to_json(self) -> str:
        breaker = self.state.breaker
        return canonical_json(
            {
                "nodes": {name: record._asdict() for name, record in self.state.nodes.items()},
                "breaker": {"suspected_s": dict(breaker.suspected_s), "opened_s": breaker.opened_s},
                "quarantined_s": self.state.quarantined_s,
                "members": sorted(self.members),
                "operator_actions": dict(self.operator_actions),
                "reset_breaker": self.reset_breaker,
                "decisions": self.decisions[:KEPT_DECISIONS],
            }
        )


async def load_state(tx: Transaction) -> StoredState:
    """Return the stored state; empty before the first evaluation."""
    record = await tx.quarantine.get()
    return StoredState() if record is None else parsed(record)


def parsed(record: QuarantineRecord) -> StoredState:
    found = json.loads(record.body)
    breaker = found["breaker"]
    return StoredState(
        state=QuarantineState(
            nodes=MappingProxyType({name: _node(each) for name, each in found["nodes"].items()}),
            breaker=CircuitBreaker(MappingProxyType(breaker["suspected_s"]), breaker["opened_s"]),
            quarantined_s=tuple(found["quarantined_s"]),
        ),
        members=frozenset(found["members"]),
        operator_actions={name: OperatorAction(action) for name, action in found["operator_actions"].items()},
        reset_breaker=found["reset_breaker"],
        decisions=tuple(found["decisions"]),
        record=record,
    )


def _node(found: Mapping[str, Any]) -> NodeRecord:
    lists = {key: tuple(found.get(key, ())) for key in ("strikes_s", "domains")}
    return NodeRecord(**{**found, **lists, "state": NodeState(found["state"])})
