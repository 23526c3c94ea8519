"""Stores power trees and the budgets of their domains: two collections that must stay consistent.

A domain belongs to one tree, and a budget in force stays within the rating of its domain.  Each write checks the other
collection under the lock of all writers.
"""

import re
from collections.abc import AsyncIterator, Iterator, Mapping
from functools import lru_cache, partial
from typing import Any

from api.schemas.power import DOMAIN_PATTERN, MAX_BUDGET_VALIDITY, PowerBudget, StoredBudget, StoredTree
from api.server.collections import AuditVerbs, Collection
from api.server.projects import ProjectAccess
from api.server.service import Service
from api.server.versioned import DocumentVersion
from api.store import Transaction
from fleet.documents import MAX_PROBLEMS, read_stored
from fleet.errors import DocumentError, Problem, nearest_names
from power.tree import Feed, PowerTree


@lru_cache(maxsize=32)
def read_tree(body: str) -> PowerTree:
    """Parse a stored tree; cached, because validating a large one takes long."""
    return read_stored(PowerTree, body)


async def _require_same_name(_service: Service, name: str, tree: PowerTree, _project: ProjectAccess) -> None:
    _require(_naming_problems(name, tree))


async def _tree_fits(service: Service, tx: Transaction, name: str, tree: PowerTree | None) -> None:
    await tx.audit.lock()
    feeds = tree.hierarchy.feeds if tree is not None else {}
    _require([problem async for problem in _fit_problems(service, tx, name, feeds)])


async def _budget_fits(service: Service, tx: Transaction, domain: str, budget: PowerBudget | None) -> None:
    if budget is None:
        return
    await tx.audit.lock()
    feeds = {name: feed async for tree in _trees(tx) for name, feed in tree.hierarchy.feeds.items()}
    _require(_budget_problems(service, domain, budget, feeds))


def _change(tree: PowerTree, before: DocumentVersion, after: DocumentVersion) -> Mapping[str, Any]:
    return {"etag_before": before.etag, "etag": after.etag, "domains": len(tree.hierarchy.feeds)}


def _naming_problems(name: str, tree: PowerTree) -> Iterator[Problem]:
    if tree.name != name:
        yield Problem("name", f"must be the name in the path ({name!r}), got {tree.name!r}")
    pattern = re.compile(DOMAIN_PATTERN)
    for domain in tree.hierarchy.feeds:
        if not pattern.fullmatch(domain):
            allowed = "1 to 63 letters, digits, `.`, `_`, `:`, `-`, a letter or digit first"
            yield Problem("feeds", f"power domain {domain!r} cannot be named in a path; allowed: {allowed}")


async def _fit_problems(
    service: Service, tx: Transaction, name: str, feeds: Mapping[str, Feed]
) -> AsyncIterator[Problem]:
    """Yield the conflicts of a tree with other trees and with budgets in force."""
    mine: set[str] = set()
    async for tree in _trees(tx):
        if tree.name == name:
            mine = set(tree.hierarchy.feeds)
        else:
            for domain in feeds.keys() & tree.hierarchy.feeds.keys():
                yield Problem("feeds", f"power domain {domain!r} is in tree {tree.name!r} already")
    async for stored in BUDGETS.all(tx):
        domain, budget = stored.name, stored.spec
        if domain not in mine or budget.expires_at <= service.now():
            continue
        in_force = f"has a budget of {budget.limit_w:,.10g} W until {budget.expires_at:%Y-%m-%d %H:%M:%SZ}"
        if domain not in feeds:
            yield Problem("feeds", f"power domain {domain!r} {in_force}; delete that before the domain goes")
        elif (rating_w := feeds[domain].limit_w) is not None and budget.limit_w > rating_w:
            yield Problem("feeds", f"power domain {domain!r} {in_force}, above its new rating of {rating_w:,.10g} W")


def _budget_problems(
    service: Service, domain: str, budget: PowerBudget, feeds: Mapping[str, Feed]
) -> Iterator[Problem]:
    if domain not in feeds:
        nearest = ", ".join(nearest_names(domain, feeds)) or "none; no tree has been put yet"
        yield Problem("path.domain", f"unknown power domain {domain!r}; nearest: {nearest}")
        return
    rating_w = feeds[domain].limit_w
    if rating_w is not None and budget.limit_w > rating_w:
        allowed = f"allowed: 0 to {rating_w:,.10g} W, got {budget.limit_w:,.10g}"
        yield Problem("limit_w", f"is above the rating of {domain!r}; {allowed}")
    now = service.now()
    if not now < budget.expires_at <= now + MAX_BUDGET_VALIDITY:
        allowed = f"after {now:%Y-%m-%d %H:%M:%SZ} and at most {MAX_BUDGET_VALIDITY.days} days later"
        yield Problem("expires_at", f"allowed: {allowed}, got {budget.expires_at:%Y-%m-%d %H:%M:%S%z}")


async def guarded_rows(tx: Transaction) -> list[str]:
    """Return the rows of all trees for which a budget is stored, expired or not."""
    with_budget = {stored.name async for stored in BUDGETS.all(tx)}
    rows = {feed.name async for tree in _trees(tx) for feed in tree.hierarchy.feeds.values() if feed.kind == "row"}
    return sorted(rows & with_budget)


async def _trees(tx: Transaction) -> AsyncIterator[PowerTree]:
    async for stored in TREES.all(tx):
        yield stored.spec


def _require(problems: Iterator[Problem] | list[Problem]) -> None:
    found = list(problems)
    if found:
        raise DocumentError(name="body", problems=found[:MAX_PROBLEMS])


TREES = Collection(
    kind="power-trees",
    path="power/trees",
    label="power tree",
    verbs=AuditVerbs("power-tree"),
    spec=PowerTree,
    shown=StoredTree,
    show=lambda found: StoredTree(name=found.name, version=found.version, tree=found.spec),
    parse=read_tree,
    validate=_require_same_name,
    check_references=_tree_fits,
    detail=_change,
    batch=100,  # trees are large
)
BUDGETS = Collection(
    kind="power-budgets",
    path="power/budgets",
    label="budget of power domain",
    verbs=AuditVerbs("power-budget"),
    spec=PowerBudget,
    shown=StoredBudget,
    show=lambda found: StoredBudget(
        domain=found.name, version=found.version, set_at=found.at, set_by=found.by, budget=found.spec
    ),
    parse=partial(read_stored, PowerBudget),
    check_references=_budget_fits,
)
