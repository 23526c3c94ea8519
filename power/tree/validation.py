"""Rules between the elements of a power tree.  Names, cycles and sums are the topology's own rules: a group of
servers counts there as a node with the nameplate of all of it.

Each rule yields (path in the document, message) per violation; a later rule runs only if the earlier ones hold.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice

from fleet.documents import MAX_PROBLEMS, Violation
from fleet.errors import nearest_names
from fleet.topology.elements import Expansion, Node, Placed
from fleet.topology.hostlist import count, expand
from fleet.topology.validation import cycles, references, sums
from power.server_model import ServerModel
from power.tree.elements import Feed, ServerGroup, length

MAX_PARTS = 50_000
MAX_DEPTH = 32  # levels of feeds; every class stores all feeds above it


def violations(
    feeds: Sequence[Feed], groups: Sequence[ServerGroup], *, servers: Sequence[ServerModel], periods: int, tree: str
) -> Iterator[Violation]:
    """Return the defects of the first broken rule."""
    parts = sum(count(feed.name) for feed in feeds) + sum(count(group.power_domain) for group in groups)
    if parts > MAX_PARTS:
        yield ("feeds",), f"expand to {parts:,} feeds and classes of servers, allowed: at most {MAX_PARTS:,}"
        return
    for rule in (_twice(feeds, groups), _unknown_servers(groups, servers), _lengths(feeds, groups, periods)):
        if found := list(islice(rule, MAX_PROBLEMS)):
            yield from found
            return
    every = _written_out(feeds, groups, servers, tree)
    for rule in (references(every), cycles(every), _too_deep(feeds), sums(every)):
        if found := list(islice(rule, MAX_PROBLEMS)):
            yield from found
            return


def nameplate_w(group: ServerGroup, model: ServerModel) -> float:
    """Return the highest power of one server of a group."""
    if group.training is not None:
        return group.training.compute_w
    together = group.load.together if group.load is not None else 1
    return max(model.prompt_w(), model.token_w(together=together))


def _twice(feeds: Sequence[Feed], groups: Sequence[ServerGroup]) -> Iterator[Violation]:
    first: dict[str, int] = {}
    for position, feed in enumerate(feeds):
        for name in expand(feed.name):
            if (earlier := first.setdefault(name, position)) != position:
                yield ("feeds", position, "name"), f"power domain {name!r} is already feeds[{earlier}]"
    positions: dict[str, int] = {}
    for position, group in enumerate(groups):
        if (earlier := positions.setdefault(group.name, position)) != position:
            yield ("groups", position, "name"), f"group {group.name!r} is already groups[{earlier}]"


def _unknown_servers(groups: Sequence[ServerGroup], servers: Sequence[ServerModel]) -> Iterator[Violation]:
    known = Counter(model.name for model in servers)
    for position, group in enumerate(groups):
        if isinstance(group.server, str) and group.server not in known:
            nearest = nearest_names(group.server, known) or tuple(known)[:3]
            message = f"no server {group.server!r} is described, allowed: one of servers or built in"
            yield ("groups", position, "server"), f"{message}; nearest: {', '.join(nearest)}"


def _lengths(feeds: Sequence[Feed], groups: Sequence[ServerGroup], periods: int) -> Iterator[Violation]:
    for position, feed in enumerate(feeds):
        if (given := length(feed.budget_w)) not in (0, periods):
            yield (
                ("feeds", position, "budget_w"),
                f"must be one figure or one for each of {periods} periods, got {given}",
            )
    for position, group in enumerate(groups):
        if group.load is not None and (given := group.load.periods) not in (0, periods):
            yield (
                ("groups", position, "load"),
                f"must have one figure for all periods or one for each of {periods}, got {given}",
            )


def _too_deep(feeds: Sequence[Feed]) -> Iterator[Violation]:
    parents = {name: feed.parent for feed in feeds for name in expand(feed.name)}
    for position, feed in enumerate(feeds):
        depth, here = 1, feed.parent
        while here is not None and depth <= MAX_DEPTH:
            depth, here = depth + 1, parents[here]
        if depth > MAX_DEPTH:
            yield (
                ("feeds", position, "parent"),
                f"has {MAX_DEPTH} feeds or more above it, allowed: at most {MAX_DEPTH - 1}",
            )


def _written_out(
    feeds: Sequence[Feed], groups: Sequence[ServerGroup], servers: Sequence[ServerModel], tree: str
) -> Expansion:
    models = {model.name: model for model in reversed(servers)}
    domains = [
        Placed(feed.model_copy(update={"name": name}), tree, ("feeds", position))
        for position, feed in enumerate(feeds)
        for name in expand(feed.name)
    ]
    nodes = []
    for position, group in enumerate(groups):
        model = group.server if isinstance(group.server, ServerModel) else models[group.server]
        watts = nameplate_w(group, model) * group.count
        for feed in expand(group.power_domain):
            # Not validated again: a whole group may draw more than one node may.
            node = Node.model_construct(name=f"{group.name}/{feed}", power_domain=feed, nominal_w=watts, leaves=())
            nodes.append(Placed(node, tree, ("groups", position)))
    return Expansion(tuple(domains), (), tuple(nodes))
