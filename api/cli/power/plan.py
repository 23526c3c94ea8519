"""`fleetwright power plan TREE`: compute clocks and budgets that keep every feed within its limit, and their loss."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from api.cli.common.console import print_line
from api.cli.common.errors import EXIT_NEGATIVE, InputError
from api.cli.common.files import STDIN, build_model, read_document, read_file
from api.cli.common.lazy_groups import new_app
from api.cli.common.options import ExplicitRemoteOptions, FileArgument, RemoteOptions
from api.cli.common.progress import record_of
from api.cli.common.result_options import NamingOptions
from api.cli.power.plan_output import print_caps, print_headroom
from fleet.documents import Document, read_model
from fleet.solvers import Limits, Solver
from fleet.topology import Topology
from power.tree import PowerTree, feeds_of

if TYPE_CHECKING:
    from power.caps import FeedHeadroom, Terms

MAX_SAMPLES = 1_000_000

app = new_app()


@app.command()
def plan(
    service: ExplicitRemoteOptions,
    naming: NamingOptions,
    tree: FileArgument,
    risk: Annotated[
        float, typer.Option(metavar="P", help="Chance at any moment that a feed draws more than it may.")
    ] = 1e-3,
    topology: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Topology with the feeds, for a tree without feeds.")
    ] = None,
    site: Annotated[str | None, typer.Option(metavar="NAME", help="With --topology of several sites: which.")] = None,
    within_slo: Annotated[
        bool, typer.Option("--within-slo", help="Never slow a class beyond its slack, even to keep a feed in limits.")
    ] = False,
    starts_at: Annotated[
        datetime | None, typer.Option(metavar="TIME", help="UTC, when the first period begins; else the last midnight.")
    ] = None,
    samples: Annotated[
        int,
        typer.Option(min=0, max=MAX_SAMPLES, metavar="N", help="Samples for the risk of added servers; 0: none."),
    ] = 0,
    seed: Annotated[int, typer.Option(min=0, metavar="S", help="Of those draws.")] = 0,
    solver: Annotated[Solver, typer.Option(help="Which program does the proving.")] = Solver.HIGHS,
    time_limit_s: Annotated[
        float, typer.Option("--time-limit-s", min=0.001, max=3600, metavar="SECONDS", help="For all periods together.")
    ] = 120.0,
    gap: Annotated[
        float, typer.Option(min=0.0, max=1.0, metavar="X", help="Share of the loss that may stay open.")
    ] = 1e-2,
) -> None:
    """Choose clocks and budgets for a power tree.

    TREE has feeds with their limits, and groups of servers with their load by period.  If no clocks satisfy the
    limits, the
    result has the feeds and watts in conflict, the exit code is 1, and the budgets in force stay.
    With --url, TREE may also be the name of a tree that the service stores.
    """
    stored_as = naming.of(service.url)
    if service.url is not None and (samples or starts_at is not None):
        raise InputError("--samples and --starts-at: need a local plan, without --url")
    stored = service.url is not None and tree != STDIN and not tree.exists()
    known = None if stored else _tree(tree, topology, site)
    from power.caps import Terms, domain_budgets, feed_headroom, plan_caps  # noqa: PLC0415

    try:
        terms = Terms(risk=risk, within_slo=within_slo)
    except ValueError as error:
        raise InputError(f"--risk: must be from 1e-09 to 0.5, got {risk:g}") from error
    if service.url is not None or known is None:
        of = {"tree_name": str(tree)} if known is None else {"tree": known}
        _plan_remotely(service, stored_as, **of, terms=terms, time_limit_s=time_limit_s, solver=solver)
        return
    found = plan_caps(
        known, terms=terms, solver=solver, limits=Limits(time_limit_s=time_limit_s, relative_gap=gap, seed=seed)
    )
    growth = _checked(known, feed_headroom(known, terms=terms), terms, samples=samples, seed=seed)
    begins = starts_at.replace(tzinfo=UTC) if starts_at is not None else _midnight()
    budgets = domain_budgets(known, found, starts_at_s=begins.timestamp())
    if not service.printed({"plan": _plain(found), "budgets": _all(budgets), "room": _all(growth)}):
        print_caps(found)
        print_line("")
        print_headroom(growth)
    if not found.status.has_mix:
        raise typer.Exit(EXIT_NEGATIVE)


def _plan_remotely(service: RemoteOptions, stored_as: Mapping[str, Any], **fields: Any) -> None:
    from api.cli.power.stored import POWER_PLANS  # noqa: PLC0415 - loads compiled code
    from api.schemas.power import CapPlanRequest  # noqa: PLC0415 - as above

    request = build_model(CapPlanRequest, "power plan", **fields)
    with service.connect() as client:
        record = record_of(client, client.submit_power_plan(request, **stored_as), read=client.get_power_plan)
    POWER_PLANS.print_record(record, service)
    if not record.plan.status.has_mix:
        raise typer.Exit(EXIT_NEGATIVE)


def _tree(path: Path, topology: Path | None, site: str | None) -> PowerTree:
    document = read_document(path)
    if topology is None:
        if site is not None:
            raise InputError("--site: needs --topology")
        return read_model(document, PowerTree)
    if isinstance(document.data, dict) and "feeds" in document.data:
        raise InputError(f"{document.name}: feeds: must be absent with --topology, which brings them")
    feeds = [_plain(feed) for feed in feeds_of(read_file(topology, Topology), site=site)]
    data = {**(document.data or {}), "feeds": feeds}
    return read_model(Document(name=document.name, data=data, root=document.root), PowerTree)


def _checked(
    tree: PowerTree, growth: "tuple[FeedHeadroom, ...]", terms: "Terms", *, samples: int, seed: int
) -> "tuple[FeedHeadroom, ...]":
    if not samples:
        return growth
    import numpy as np  # noqa: PLC0415 - as above

    from power.caps import with_risk  # noqa: PLC0415 - as above

    rng = np.random.default_rng(seed)
    return tuple(with_risk(tree, one, samples=samples, rng=rng, terms=terms) for one in growth)


def _midnight() -> datetime:
    return datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def _all(values: Iterable[Any]) -> list[Any]:
    return [_plain(value) for value in values]


def _plain(value: Any) -> Any:
    return value.model_dump(mode="json")
