"""Independent components of a cap problem: feeds that no choice can exceed are dropped, and the rest splits into the
trees under the highest remaining feeds.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from power.caps.options import Option
from power.caps.power_model import Draw, peak_w
from power.caps.program import CapProblem, FeedLimit


@dataclass(frozen=True)
class Component:
    """A problem of some classes and feeds of a larger problem."""

    problem: CapProblem
    classes: tuple[int, ...]  # index of its classes in the whole problem
    feeds: tuple[int, ...]


def parts(whole: CapProblem) -> Iterator[Component]:
    """Split a problem; a class in no component takes its first option."""
    by_menu: dict[int, Draw] = {}
    for menu in whole.options:
        if id(menu) not in by_menu:  # classes of a group share one
            by_menu[id(menu)] = _highest(menu)
    highest = [by_menu[id(menu)] for menu in whole.options]
    doubtful = [position for position, feed in enumerate(whole.feeds) if _may_break(whole, feed, highest)]
    under = {position: frozenset(whole.feeds[position].members) for position in doubtful}
    left = sorted(doubtful, key=lambda position: -len(under[position]))
    while left:
        top = left[0]
        inside = [position for position in left if under[position] <= under[top]]
        left = [position for position in left if position not in inside]
        yield _part(whole, sorted(inside))


def _highest(menu: Sequence[Option]) -> Draw:
    return Draw(*map(max, zip(*(option.draw for option in menu), strict=True)))


def _may_break(whole: CapProblem, feed: FeedLimit, highest: Sequence[Draw]) -> bool:
    """Return whether the classes, with every part of their draw at its highest, would exceed the feed's limit."""
    return peak_w((highest[g] for g in feed.members), sigmas=whole.sigmas) > feed.limit_w


def _part(whole: CapProblem, feeds: list[int]) -> Component:
    classes = sorted({g for position in feeds for g in whole.feeds[position].members})
    new = {g: at for at, g in enumerate(classes)}
    limits = []
    for position in feeds:
        feed = whole.feeds[position]
        limits.append(FeedLimit(feed.name, feed.limit_w, tuple(new[g] for g in feed.members)))
    problem = CapProblem(tuple(whole.options[g] for g in classes), tuple(limits), whole.sigmas)
    return Component(problem, tuple(classes), tuple(feeds))
