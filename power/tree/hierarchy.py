"""A power tree written out: every feed by its own name, every class of servers with the feeds above it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fleet.errors import UnknownNameError
from fleet.topology.hostlist import expand
from power.server_model import ServerModel
from power.tree.elements import Feed, ServerGroup


@dataclass(frozen=True, slots=True, eq=False)
class ServerClass:
    """The servers of one group on one feed, with one common option."""

    name: str  # group/feed
    group: ServerGroup
    model: ServerModel
    feeds: tuple[str, ...]  # from its own up to the root
    two_sided: bool  # whether any of them has two sides

    @property
    def feed(self) -> str:
        return self.feeds[0]


class Hierarchy:
    def __init__(self, feeds: Sequence[Feed], groups: Sequence[ServerGroup], servers: Sequence[ServerModel]) -> None:
        written = [feed.model_copy(update={"name": name}) for feed in feeds for name in expand(feed.name)]
        self.feeds: Mapping[str, Feed] = {feed.name: feed for feed in written}
        models = {model.name: model for model in reversed(servers)}
        self.classes: tuple[ServerClass, ...] = tuple(self._classes(groups, models))
        self.below: Mapping[str, list[int]] = {name: [] for name in self.feeds}  # feed -> classes anywhere under it
        self.children: Mapping[str, list[str]] = {name: [] for name in self.feeds}
        for position, one in enumerate(self.classes):
            for name in one.feeds:
                self.below[name].append(position)
        for feed in self.feeds.values():
            if feed.parent is not None:
                self.children[feed.parent].append(feed.name)

    def upwards(self, name: str) -> Iterator[str]:
        """Iterate over a feed and all feeds above."""
        here: str | None = self.feed(name).name
        while here is not None:
            yield here
            here = self.feeds[here].parent

    def feed(self, name: str) -> Feed:
        if name not in self.feeds:
            raise UnknownNameError(kind="power domain", name=name, known=self.feeds)
        return self.feeds[name]

    def on_one_side(self, name: str) -> bool:
        """Return whether the loss of a side, here or above, can reach a feed."""
        return any(self.feeds[above].two_sided for above in self.upwards(name))

    def top_down(self) -> Iterator[str]:
        """Iterate over the feeds, each after its parent."""
        waiting = [name for name in reversed(list(self.feeds)) if self.feeds[name].parent is None]
        while waiting:
            yield (here := waiting.pop())
            waiting += reversed(self.children[here])

    def _classes(self, groups: Sequence[ServerGroup], models: Mapping[str, ServerModel]) -> Iterator[ServerClass]:
        for group in groups:
            model = group.server if isinstance(group.server, ServerModel) else models[group.server]
            for feed in expand(group.power_domain):
                above = tuple(self.upwards(feed))
                two_sided = any(self.feeds[name].two_sided for name in above)
                yield ServerClass(f"{group.name}/{feed}", group, model, above, two_sided)
