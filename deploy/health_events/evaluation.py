"""The observed nodes as the quarantine policy takes them: members with pools and failure domains, and spares.

A node that takes no work for another reason is absent: the policy counts it against the budgets of its groups.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

import structlog

from api.schemas.faults import NODE_PATTERN
from api.schemas.quarantine import Evaluation, MemberReport
from deploy.common.errors import ActuationError
from deploy.health_events.outlet import NodeSource, ObservedNode

log = structlog.get_logger()


async def observe(sources: Sequence[NodeSource]) -> dict[str, ObservedNode] | None:
    """Return the nodes of all sources; None if one of them does not respond, because part of the fleet misleads."""
    found: list[Mapping[str, ObservedNode]] = []
    for source in sources:
        try:
            found.append(await source.observe())
        except ActuationError as error:
            log.warning("nodes_not_observed", source=source.name, reason=str(error))
            return None
    return merged(found)


def merged(sources: Iterable[Mapping[str, ObservedNode]]) -> dict[str, ObservedNode]:
    """Combine sources by node name.  Names that the API does not accept are left out."""
    nodes: dict[str, ObservedNode] = {}
    for source in sources:
        for name, node in source.items():
            if re.fullmatch(NODE_PATTERN, name):
                nodes[name] = _both(nodes[name], node) if name in nodes else node
    return nodes


def evaluation_of(nodes: Mapping[str, ObservedNode], *, out: AbstractSet[str]) -> Evaluation:
    members = {
        node.name: MemberReport(
            pool=node.pool, domains=node.domains, absent=node.name not in out and not node.available
        )
        for node in nodes.values()
    }
    free = Counter(each.pool for each in nodes.values() if each.available and each.idle and each.name not in out)
    return Evaluation(members=members, spares=dict(free))


def _both(first: ObservedNode, second: ObservedNode) -> ObservedNode:
    return replace(
        first,
        domains=tuple(dict.fromkeys((*first.domains, *second.domains))),
        available=first.available and second.available,
        idle=first.idle or second.idle,
        owner=first.owner or second.owner,
        conditions=(*first.conditions, *second.conditions),
    )
