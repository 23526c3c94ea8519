"""Power trees and the budgets in force on their domains, as versioned documents that must fit each other.

A domain stands in one tree only, and a budget that has not expired stays within its domain's rating: whichever side is
written, the other is looked at under the lock that all writers share.
"""

import re
from collections.abc import AsyncIterator, Iterator, Mapping
from functools import lru_cache

from api.schemas.power import DOMAIN_PATTERN, LONGEST_BUDGET, PowerBudget
from api.server.etags import Precondition
from api.server.service import Service
from api.server.versioned import Deed, Edition, Slot, edition, replace
from api.store import DocumentVersion, Transaction, canonical_json
from fleet.documents import MAX_PROBLEMS
from fleet.errors import DocumentError, Problem, nearest_names
from power.tree import Feed, PowerTree

TREE_KIND = "power-trees"
BUDGET_KIND = "power-budgets"
BATCH = 100


def tree_slot(name: str) -> Slot:
    """Where a tree lives."""
    return Slot(kind=TREE_KIND, name=name)


def budget_slot(domain: str) -> Slot:
    """Where a domain's budget lives."""
    return Slot(kind=BUDGET_KIND, name=domain)


@lru_cache(maxsize=32)
def read_tree(body: str) -> PowerTree:
    """A stored tree; a large one takes long to check again."""
    return PowerTree.model_validate_json(body)


def read_budget(found: Edition) -> PowerBudget:
    """A stored budget."""
    return PowerBudget.model_validate_json(found.body or "")


async def write_tree(
    service: Service, name: str, tree: PowerTree, *, precondition: Precondition, actor: str
) -> tuple[Edition, bool]:
    """Create or replace a tree; its new version, and whether it was created."""
    _require(_naming_problems(name, tree))

    def deed(before: Edition, after: Edition) -> Deed:
        verb = "created" if before.body is None else "replaced"
        detail = {"etag_before": before.etag, "etag": after.etag, "domains": len(tree.hierarchy.feeds)}
        return Deed(action=f"power-tree.{verb}", subject=f"power/trees/{name}", detail=detail)

    async def check(tx: Transaction) -> None:
        await tx.audit.lock()
        _require([problem async for problem in _fit_problems(service, tx, name, tree.hierarchy.feeds)])

    before, after = await replace(
        service,
        tree_slot(name),
        body=canonical_json(tree.model_dump(mode="json")),
        precondition=precondition,
        actor=actor,
        deed=deed,
        check=check,
    )
    return after, before.body is None


async def delete_tree(service: Service, name: str, *, precondition: Precondition, actor: str) -> None:
    """Forget a tree on which no budget is in force; its versions stay."""

    async def check(tx: Transaction) -> None:
        await tx.audit.lock()
        _require([problem async for problem in _fit_problems(service, tx, name, {})])

    await replace(
        service,
        tree_slot(name),
        body=None,
        precondition=precondition,
        actor=actor,
        deed=lambda _before, _after: Deed(action="power-tree.deleted", subject=f"power/trees/{name}", detail={}),
        check=check,
    )


async def write_budget(
    service: Service, domain: str, budget: PowerBudget, *, precondition: Precondition, actor: str
) -> tuple[Edition, bool]:
    """Set what a domain may draw; its new version, and whether there was none before."""
    detail = budget.model_dump(mode="json")

    def deed(before: Edition, _after: Edition) -> Deed:
        verb = "created" if before.body is None else "replaced"
        return Deed(action=f"power-budget.{verb}", subject=f"power/budgets/{domain}", detail=detail)

    async def check(tx: Transaction) -> None:
        await tx.audit.lock()
        feeds = {name: feed async for tree in _trees(tx) for name, feed in tree.hierarchy.feeds.items()}
        _require(_budget_problems(service, domain, budget, feeds))

    before, after = await replace(
        service,
        budget_slot(domain),
        body=canonical_json(detail),
        precondition=precondition,
        actor=actor,
        deed=deed,
        check=check,
    )
    return after, before.body is None


async def delete_budget(service: Service, domain: str, *, precondition: Precondition, actor: str) -> None:
    """Withdraw a budget: who guards the domain falls back to its standing one."""
    await replace(
        service,
        budget_slot(domain),
        body=None,
        precondition=precondition,
        actor=actor,
        deed=lambda _before, _after: Deed(action="power-budget.deleted", subject=f"power/budgets/{domain}", detail={}),
    )


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
    """What other trees and the budgets in force have against these feeds under this name."""
    mine: set[str] = set()
    async for tree in _trees(tx):
        if tree.name == name:
            mine = set(tree.hierarchy.feeds)
        else:
            for domain in feeds.keys() & tree.hierarchy.feeds.keys():
                yield Problem("feeds", f"power domain {domain!r} stands in tree {tree.name!r} already")
    async for domain, budget in _budgets(tx):
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
    if not now < budget.expires_at <= now + LONGEST_BUDGET:
        allowed = f"after {now:%Y-%m-%d %H:%M:%SZ} and at most {LONGEST_BUDGET.days} days later"
        yield Problem("expires_at", f"allowed: {allowed}, got {budget.expires_at:%Y-%m-%d %H:%M:%S%z}")


async def _trees(tx: Transaction) -> AsyncIterator[PowerTree]:
    async for document in _all(tx, TREE_KIND):
        yield read_tree(document.body or "")


async def _budgets(tx: Transaction) -> AsyncIterator[tuple[str, PowerBudget]]:
    async for document in _all(tx, BUDGET_KIND):
        yield document.name, read_budget(edition(document))


async def _all(tx: Transaction, kind: str) -> AsyncIterator[DocumentVersion]:
    after: str | None = None
    while batch := await tx.documents.heads(kind=kind, after=after, limit=BATCH):
        for document in batch:
            yield document
        after = batch[-1].name


def _require(problems: Iterator[Problem] | list[Problem]) -> None:
    found = list(problems)
    if found:
        raise DocumentError(name="body", problems=found[:MAX_PROBLEMS])
