from math import isfinite

from power.caps.budgets import firm, spread_w, touching
from power.caps.options import slack_of
from power.caps.power_model import Draw, peak_w
from power.caps.program import CapProblem
from power.caps.result import ClassCaps, FeedCaps, PeriodCaps
from power.caps.scenarios import Scenarios
from power.caps.solving import CapResult

W_PER_KW = 1000.0

Solved = tuple[CapProblem, CapResult]


def period_caps(scenarios: Scenarios, period: int, solved: Solved, lost: Solved | None) -> PeriodCaps:
    """Report one period; without a choice only the power at full clock."""
    result, prices = solved[1], _prices_per_kw(solved)
    status = result.status
    if lost is not None and not lost[1].status.has_mix:
        status = lost[1].status
    return PeriodCaps(
        period=period,
        status=status,
        loss=result.loss,
        bound=result.bound if isfinite(result.bound) else None,
        lost_loss=None if lost is None else lost[1].loss,
        binding=tuple(sorted(prices, key=lambda name: -prices[name])),
        classes=tuple(_classes(scenarios, solved, lost)),
        feeds=tuple(_feeds(scenarios, period, solved, lost)),
    )


def draws_of(solved: Solved) -> list[Draw]:
    """Return the option of each class in the choice; without a choice the first option."""
    problem, result = solved
    choice = result.choice or (0,) * len(problem.options)
    return [menu[o].draw for menu, o in zip(problem.options, choice, strict=True)]


def _classes(scenarios: Scenarios, solved: Solved, lost: Solved | None) -> list[ClassCaps]:
    problem, result = solved
    found = []
    for g, one in enumerate(scenarios.tree.hierarchy.classes):
        if result.choice is None:
            break
        now = problem.options[g][result.choice[g]]
        after = None
        if lost is not None and lost[1].choice is not None and one.two_sided:
            after = lost[0].options[g][lost[1].choice[g]]
        found.append(
            ClassCaps(
                name=one.name,
                group=one.group.name,
                feed=one.feed,
                servers=one.group.count,
                slack=slack_of(one, scenarios.terms),
                token_clock=now.token_clock,
                prompt_clock=now.prompt_clock,
                slowdown=now.slowdown,
                loss=now.loss,
                lost_token_clock=None if after is None else after.token_clock,
                lost_prompt_clock=None if after is None else after.prompt_clock,
            )
        )
    return found


def _feeds(scenarios: Scenarios, period: int, solved: Solved, lost: Solved | None) -> list[FeedCaps]:
    hierarchy, sigmas = scenarios.tree.hierarchy, scenarios.terms.sigmas
    full = [menu[0].draw for menu in solved[0].options]
    now = draws_of(solved)
    has_choice = solved[1].choice is not None
    prices = _prices_per_kw(solved)
    limits = {name: feed.may_draw_w(period) for name, feed in hierarchy.feeds.items()}
    budgets = firm(hierarchy, now, limits) if has_choice else {}
    one_side = _one_side(scenarios, period, lost)
    found = []
    for name, members in hierarchy.below.items():
        mine = [now[g] for g in members]
        budget_w = budgets.get(name)
        budget_w = budget_w if budget_w is not None and isfinite(budget_w) else None
        mean_w = sum(draw.mean_w for draw in mine)
        found.append(
            FeedCaps(
                name=name,
                limit_w=limits[name],
                uncapped_peak_w=peak_w([full[g] for g in members], sigmas=sigmas),
                peak_w=peak_w(mine, sigmas=sigmas),
                budget_w=budget_w,
                budget_risk=None if budget_w is None else touching(budget_w, mean_w, spread_w(mine)),
                loss_per_kw=prices.get(name, 0.0),
                **one_side.get(name, {}),
            )
        )
    return found


def _one_side(scenarios: Scenarios, period: int, lost: Solved | None) -> dict[str, dict[str, float]]:
    if lost is None or lost[1].choice is None:
        return {}
    hierarchy, draws = scenarios.tree.hierarchy, draws_of(lost)
    limits = {
        name: feed.may_draw_on_one_side_w(period) if hierarchy.on_one_side(name) else feed.may_draw_w(period)
        for name, feed in hierarchy.feeds.items()
    }
    budgets, prices = firm(hierarchy, draws, limits), _prices_per_kw(lost)
    found: dict[str, dict[str, float]] = {}
    for name, members in hierarchy.below.items():
        limit_w = limits[name]
        if limit_w is None or not hierarchy.on_one_side(name):
            continue
        found[name] = {
            "lost_limit_w": limit_w,
            "lost_peak_w": peak_w([draws[g] for g in members], sigmas=scenarios.terms.sigmas),
            "lost_budget_w": budgets[name],
            "lost_loss_per_kw": prices.get(name, 0.0),
        }
    return found


def _prices_per_kw(solved: Solved) -> dict[str, float]:
    problem, result = solved
    return {problem.feeds[position].name: price * W_PER_KW for position, price in result.prices.items()}
