"""`fleetwright place check`: a placement on loads of today."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from api.cli.failures import EXIT_BAD_INPUT, EXIT_REFUSED, CommandError
from api.cli.groups import new_app
from api.cli.output import Format, FormatOption, say_json
from api.cli.place_files import given_placement
from api.cli.place_question import given_loads
from api.cli.streams import say
from api.cli.tables import Column, Table, number, say_table
from api.cli.textfiles import name_of
from fleet.documents import RuleError, dotted
from placement.request import MAX_CEILING

if TYPE_CHECKING:  # loads compiled code
    from placement.judgement import Judgement

COLUMNS = (Column(""), number("imbalance", decimals=4), number("copies to move"))

app = new_app()


@app.command()
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A placement.json, or - for stdin.")],
    loads: Annotated[
        list[Path], typer.Option(metavar="LOADS", help="Loads of today, in any form; several are windows, added up.")
    ],
    max_imbalance: Annotated[
        float, typer.Option(min=1.0, max=MAX_CEILING, metavar="X", help="From where on to act: mean over layers.")
    ] = 1.05,
    least_tokens: Annotated[
        float, typer.Option(min=0.0, metavar="T", help="Count experts that took fewer tokens with this many.")
    ] = 0.0,
    output: FormatOption = Format.TABLE,
) -> None:
    """Judge a placement on other loads, and say whether to act.

    The exit code is 1 where it is above the ceiling.  Acting is `fleetwright place LOADS --current FILE`.
    """
    placement, _source = given_placement(file)
    given, _sources = given_loads(loads, model=None, least_tokens=least_tokens)
    from placement.judgement import judged  # noqa: PLC0415 - loads compiled code: wrong input is told before that

    try:
        found = judged(placement, placement.same_rows(given), ceiling=max_imbalance)
    except RuleError as error:
        lines = (f"{', '.join(map(name_of, loads))}: {dotted(path)}: {message}" for path, message in error.flaws)
        raise CommandError(*lines, exit_code=EXIT_BAD_INPUT) from error
    if output is Format.JSON:
        say_json(found)
    else:
        _say(found)
    if not found.holds:
        raise typer.Exit(EXIT_REFUSED)


def _say(found: "Judgement") -> None:
    rows = [
        ("promised, on its own loads", found.promised, None),
        ("now", found.imbalance.mean, 0),
        ("after few moves", found.after_moves, found.moved_copies),
        ("made anew", found.fresh, found.fresh_moved_copies),
        ("bound", found.bound.mean, None),
    ]
    say_table(Table(COLUMNS, rows))
    say("")
    if found.expected:
        say(f"next windows: {', '.join(f'{mean:.4f}' for mean in found.expected)}")
    verdict = "keep it" if found.holds else "act"
    say(f"{verdict}: the mean is {'under' if found.holds else 'above'} the ceiling of {found.ceiling:g}")
