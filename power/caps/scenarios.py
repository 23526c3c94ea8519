"""The cap problem of a period in two scenarios: with both sides of every 2N feed, and with one side lost.

After the loss, every feed under the highest 2N feed above the loss must fit one side.  No class raises any peak above
its value before the loss, so that feeds further up stay within their limits.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from power.caps.options import Option, Terms, emergency_options, options, raises_no_peak
from power.caps.program import CapProblem, Choice, FeedLimit
from power.tree.document import PowerTree

Menu = tuple[Option, ...]


@dataclass(frozen=True)
class Scenarios:
    tree: PowerTree
    terms: Terms

    @cached_property
    def limited(self) -> Mapping[str, tuple[int, ...]]:
        return {name: tuple(members) for name, members in self.tree.hierarchy.below.items() if members}

    def both_sides(self, period: int) -> CapProblem:
        hierarchy, menus = self.tree.hierarchy, self._menus(period, emergency=False)
        limits = {name: hierarchy.feeds[name].may_draw_w(period) for name in self.limited}
        return self._problem(tuple(menus[one.group.name] for one in hierarchy.classes), limits)

    def one_side(self, period: int, before: CapProblem, choice: Choice) -> CapProblem | None:
        """Return the problem after a loss, given the choice before it; None if no feed has two sides."""
        hierarchy = self.tree.hierarchy
        if not any(one.two_sided for one in hierarchy.classes):
            return None
        menus = self._menus(period, emergency=True)
        held: dict[tuple[str, Option], Menu] = {}
        chosen: list[Menu] = []
        for g, one in enumerate(hierarchy.classes):
            now = before.options[g][choice[g]]
            key = one.group.name, now
            if key not in held:
                held[key] = self._lower(menus[one.group.name], now)
            chosen.append(held[key] if one.two_sided else (now,))
        limits = {
            name: hierarchy.feeds[name].may_draw_on_one_side_w(period)
            for name in self.limited
            if hierarchy.on_one_side(name)
        }
        return self._problem(tuple(chosen), limits)

    def _lower(self, menu: Menu, now: Option) -> Menu:
        """Return the options that are allowed after the loss of a side."""
        return tuple(o for o in menu if raises_no_peak(o.draw, now.draw, sigmas=self.terms.sigmas)) or (now,)

    def _menus(self, period: int, *, emergency: bool) -> dict[str, Menu]:
        """Return the options of each group; its classes differ only in their feed."""
        made: dict[str, Menu] = {}
        make = emergency_options if emergency else options
        for one in self.tree.hierarchy.classes:
            if one.group.name not in made:
                made[one.group.name] = make(one, period, terms=self.terms, correlation=self.tree.correlation.mid)
        return made

    def _problem(self, menus: tuple[Menu, ...], limits: Mapping[str, float | None]) -> CapProblem:
        feeds = [
            FeedLimit(name, limit_w, self.limited[name]) for name, limit_w in limits.items() if limit_w is not None
        ]
        return CapProblem(menus, tuple(feeds), self.terms.sigmas)
