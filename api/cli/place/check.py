"""`fleetwright place check`: assess a placement on new loads."""

from pathlib import Path
from typing import Annotated, Any

import typer

from api.cli.common.console import print_line
from api.cli.common.errors import EXIT_NEGATIVE, CommandError, InputError
from api.cli.common.files import name_of
from api.cli.common.lazy_groups import new_app
from api.cli.common.options import ExplicitRemoteOptions
from api.cli.common.tables import Column, Table, number, print_table
from api.cli.place.output import moves_text
from api.cli.place.request import loads_from, placement_from, with_option_names
from fleet.documents import RuleError, dotted
from fleet.models import builtin_models
from placement.document import Placement
from placement.drift_request import Assessment, DriftRequest, DriftTerms
from placement.layout import MAX_EXPERT_BYTES
from placement.layout_schema import nested_tuples
from placement.loads import ExpertLoads
from placement.request import MAX_CEILING

COLUMNS = (Column(""), number("imbalance", decimals=4), number("copies to move"))

app = new_app()


@app.command()
def check(
    service: ExplicitRemoteOptions,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A placement.json, or - for stdin.")],
    loads: Annotated[
        list[Path], typer.Option(metavar="LOADS", help="New loads, in any form; several are windows, added up.")
    ],
    max_imbalance: Annotated[
        float, typer.Option(min=1.0, max=MAX_CEILING, metavar="X", help="Both levels below: mean over layers.")
    ] = 1.05,
    act_above: Annotated[
        float | None, typer.Option(min=1.0, max=MAX_CEILING, metavar="X", help="Nothing moves up to this mean.")
    ] = None,
    settle_at: Annotated[
        float | None, typer.Option(min=1.0, max=MAX_CEILING, metavar="X", help="The mean that moves aim at.")
    ] = None,
    under_way: Annotated[
        bool, typer.Option("--under-way", help="Moves have begun: continue down to --settle-at.")
    ] = False,
    window_s: Annotated[float, typer.Option(metavar="S", help="Duration of the assumed loads, in seconds.")] = 3600.0,
    moe_share: Annotated[float, typer.Option(metavar="Q", help="MoE layers' share of the step time now.")] = 0.4,
    slowdown: Annotated[
        float, typer.Option(metavar="Q", help="Share of throughput lost while copies move; 1: all of it.")
    ] = 1.0,
    move_gb_per_s: Annotated[
        float | None, typer.Option(metavar="R", help="Bandwidth for moves, each way, per GPU; else moves are free.")
    ] = None,
    node_gb_per_s: Annotated[
        float | None,
        typer.Option(metavar="R", help="Bandwidth for moves, each way, per node; else all its GPUs together."),
    ] = None,
    expert_bytes: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MAX_EXPERT_BYTES,
            metavar="B",
            help="Weights of one expert in one layer; else the model's in FP8.",
        ),
    ] = None,
    least_tokens: Annotated[
        float, typer.Option(min=0.0, metavar="T", help="Count experts with fewer tokens with this many.")
    ] = 0.0,
) -> None:
    """Assess a placement on other loads, and recommend whether to act.

    To act, the mean must be above --act-above, and the gain of few moves over the window must exceed their cost by
    half. The exit code is 1 for `act`.  To act, run `fleetwright place LOADS --current FILE`.
    """
    placement, _source = placement_from(file)
    given, _sources = loads_from(loads, model=None, least_tokens=least_tokens)
    terms = DriftTerms(
        max_imbalance=max_imbalance,
        act_above=act_above,
        settle_at=settle_at,
        under_way=under_way,
        window_s=window_s,
        moe_share=moe_share,
        slowdown=slowdown,
        move_gb_per_s=move_gb_per_s,
        node_gb_per_s=node_gb_per_s,
        expert_bytes=expert_bytes,
    )
    new_loads = placement.same_rows(given)
    found = (
        _assess(placement, new_loads, terms, names=", ".join(map(name_of, loads)))
        if service.url is None
        else _assess_remotely(placement, new_loads, terms, service)
    )
    if not service.printed(found):
        _print(found)
    if found.act:
        raise typer.Exit(EXIT_NEGATIVE)


def _assess(placement: Placement, loads: ExpertLoads, given: DriftTerms, *, names: str) -> Assessment:
    from placement.drift.assessment import assess  # noqa: PLC0415 - loads compiled code: input errors come first
    from placement.drift.from_request import terms_of  # noqa: PLC0415

    model = next((model for model in builtin_models().models if model.name == placement.model), None)
    try:
        terms = terms_of(given, model)
    except RuleError as error:
        raise _refused(error) from error
    try:
        return assess(placement, loads, terms=terms)
    except RuleError as error:
        lines = (f"{names}: {dotted(path)}: {with_option_names(message)}" for path, message in error.violations)
        raise InputError(*lines) from error


def _assess_remotely(
    placement: Placement, loads: ExpertLoads, given: DriftTerms, service: ExplicitRemoteOptions
) -> Assessment:
    request = DriftRequest(
        **given.model_dump(),
        placement=placement,
        windows=nested_tuples(loads.tokens),
        layers=loads.layers,
        hidden_layers=loads.hidden_layers,
    )
    with service.connect() as client:
        return client.assess_placement(request)


def _refused(error: RuleError) -> CommandError:
    lines = (f"--{str(path[0]).replace('_', '-')}: {with_option_names(message)}" for path, message in error.violations)
    return InputError(*lines)


def _print(found: Assessment) -> None:
    rows: list[tuple[Any, ...]] = [
        ("planned, on its own loads", found.promised, None),
        ("now", found.imbalance.mean, 0),
        ("after few moves", found.after_moves, found.moved_copies),
        ("planned again", found.fresh, found.fresh_moved_copies),
        ("bound", found.bound.mean, None),
    ]
    print_table(Table(COLUMNS, rows))
    print_line("")
    if found.expected:
        print_line(f"next windows: {', '.join(f'{mean:.4f}' for mean in found.expected)}")
    if found.moves is not None and found.moves.copies:
        print_line(f"few moves: {found.moves.copies:,} copies, {moves_text(found.moves)}")
    print_line(f"{'act' if found.act else 'wait'}: {found.reason}")
