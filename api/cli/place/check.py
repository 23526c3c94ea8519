"""`fleetwright place check`: assess a placement on new loads."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from api.cli.common.console import print_line
from api.cli.common.errors import EXIT_NEGATIVE, CommandError, InputError
from api.cli.common.files import name_of
from api.cli.common.lazy_groups import new_app
from api.cli.common.output import Format, FormatOption, print_json
from api.cli.common.tables import Column, Table, number, print_table
from api.cli.place.output import moves_text
from api.cli.place.request import loads_from, placement_from, with_option_names
from fleet.documents import RuleError, dotted
from fleet.models import builtin_models
from placement.document import Placement
from placement.layout import MAX_EXPERT_BYTES
from placement.problem import Pace
from placement.request import MAX_CEILING

if TYPE_CHECKING:  # loads compiled code
    from placement.drift.assessment import Assessment, Terms

COLUMNS = (Column(""), number("imbalance", decimals=4), number("copies to move"))

app = new_app()


@app.command()
def check(
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
    output: FormatOption = Format.TABLE,
) -> None:
    """Assess a placement on other loads, and recommend whether to act.

    To act, the mean must be above --act-above, and the gain of few moves over the window must exceed their cost by
    half. The exit code is 1 for `act`.  To act, run `fleetwright place LOADS --current FILE`.
    """
    placement, _source = placement_from(file)
    given, _sources = loads_from(loads, model=None, least_tokens=least_tokens)
    high = act_above if act_above is not None else max(max_imbalance, settle_at or 1.0)
    low = settle_at if settle_at is not None else min(max_imbalance, high)
    terms = _terms(
        (high, low),
        window={"window_s": window_s, "moe_share": moe_share, "slowdown": slowdown},
        pace=_pace(placement, move_gb_per_s, node_gb_per_s, expert_bytes),
        under_way=under_way,
    )
    from placement.drift.assessment import assess  # noqa: PLC0415 - loads compiled code: input errors come first

    try:
        found = assess(placement, placement.same_rows(given), terms=terms)
    except RuleError as error:
        names = ", ".join(map(name_of, loads))
        lines = (f"{names}: {dotted(path)}: {with_option_names(message)}" for path, message in error.violations)
        raise InputError(*lines) from error
    if output is Format.JSON:
        print_json(found)
    else:
        _print(found)
    if found.act:
        raise typer.Exit(EXIT_NEGATIVE)


def _pace(
    placement: Placement, move_gb_per_s: float | None, node_gb_per_s: float | None, expert_bytes: int | None
) -> Pace | None:
    if move_gb_per_s is None:
        if node_gb_per_s is not None:
            raise InputError("--node-gb-per-s: needs --move-gb-per-s")
        return None
    if expert_bytes is None:
        known = (model.expert_parameters for model in builtin_models().models if model.name == placement.model)
        expert_bytes = next(known, None)
    if not expert_bytes:
        message = "--move-gb-per-s: needs --expert-bytes, because the placement names no known model"
        raise InputError(message)
    try:
        return Pace(expert_bytes=expert_bytes, move_gb_per_s=move_gb_per_s, node_gb_per_s=node_gb_per_s)
    except RuleError as error:
        raise _refused(error) from error


def _terms(levels: tuple[float, float], *, window: dict[str, float], pace: Pace | None, under_way: bool) -> "Terms":
    from placement.drift.assessment import Terms  # noqa: PLC0415 - as above
    from placement.migration import Levels, Window  # noqa: PLC0415

    try:
        return Terms(levels=Levels(*levels), window=Window(**window), pace=pace, under_way=under_way)
    except RuleError as error:
        raise _refused(error) from error


def _refused(error: RuleError) -> CommandError:
    lines = (f"--{str(path[0]).replace('_', '-')}: {with_option_names(message)}" for path, message in error.violations)
    return InputError(*lines)


def _print(found: "Assessment") -> None:
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
