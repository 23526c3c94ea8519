"""`fleetwright faults isolation`: by which rules nodes go, where each stands, an operator's word."""

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
import yaml

from api.cli.common.console import note, say, write
from api.cli.common.errors import EXIT_BAD_INPUT, CommandError
from api.cli.common.files import read_file
from api.cli.common.lazy_groups import new_app
from api.cli.common.options import TokenFileOption, UrlOption
from api.cli.common.output import DocumentFormat, DocumentFormatOption, Format, FormatOption, say_json
from api.cli.common.remote import connect
from api.cli.common.tables import Column, Table, in_words, moment, number, say_fields, say_table
from api.schemas.quarantine import IsolationView, NodeView
from faults.quarantine import IsolationRules, Mode, Wish

NODES = (
    Column("node"),
    Column("standing"),
    Column("dry run", show=in_words),
    moment("since"),
    Column("accused by"),
    Column("refused"),
    number("strikes"),
    moment("probe at"),
    Column("wish"),
)
DECISIONS = (
    moment("at"),
    Column("decision"),
    Column("node"),
    Column("dry run", show=in_words),
    Column("reason"),
)

NodeArgument = Annotated[str, typer.Argument(metavar="NODE", help="The node's name in the fleet.")]

app = new_app()


@app.callback()
def isolation() -> None:
    """Which nodes are out, by which rules; approve and release."""


@app.command("show")
def show(url: UrlOption = None, token_file: TokenFileOption = None, output: FormatOption = Format.TABLE) -> None:
    """Show where every node stands that has a story, and the newest decisions."""
    with connect(url, token_file) as client:
        found = client.get_isolation()
    if output is Format.JSON:
        say_json(found)
    else:
        _say(found)


@app.command("rules")
def rules(
    url: UrlOption = None, token_file: TokenFileOption = None, output: DocumentFormatOption = DocumentFormat.YAML
) -> None:
    """Print the rules in force, as `set` takes them."""
    with connect(url, token_file) as client:
        found = client.get_isolation_rules()
    note(f"version {found.etag}")
    rules_now = found.document.rules
    if output is DocumentFormat.JSON:
        say_json(rules_now)
    else:  # all of them, those as shipped too: who changes one wants to see what there is
        write(yaml.safe_dump(rules_now.model_dump(mode="json"), sort_keys=False))


@app.command("set")
def set_rules(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="Rules as `rules` prints them.", show_default="those in force"),
    ] = None,
    mode: Annotated[Mode | None, typer.Option(help="How far a decision goes.", show_default="as it is")] = None,
    etag: Annotated[
        str | None, typer.Option(metavar="ETAG", help="Replace only this version; without it, the one there now.")
    ] = None,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Set the rules from a file, or only how far a decision goes."""
    if file is None and mode is None:
        raise CommandError("faults isolation set: give FILE, --mode or both", exit_code=EXIT_BAD_INPUT)
    given = None if file is None else read_file(file, IsolationRules)
    with connect(url, token_file) as client:
        now = client.get_isolation_rules()
        wanted = given or now.document.rules
        if mode is not None:
            wanted = wanted.model_copy(update={"mode": mode})
        stored = client.replace_isolation_rules(wanted, if_match=etag or now.etag)
    if output is Format.JSON:
        say_json(stored.document)
    else:
        say(f"isolation rules: version {stored.etag}, mode {stored.document.rules.mode.value}")


@app.command("approve")
def approve(
    node: NodeArgument, url: UrlOption = None, token_file: TokenFileOption = None, output: FormatOption = Format.TABLE
) -> None:
    """Let a proposed node go, if it still may."""
    with connect(url, token_file) as client:
        _told(client.wish_for_node(node, Wish.APPROVE), output)


@app.command("decline")
def decline(
    node: NodeArgument, url: UrlOption = None, token_file: TokenFileOption = None, output: FormatOption = Format.TABLE
) -> None:
    """Keep a proposed node in service, for this verdict."""
    with connect(url, token_file) as client:
        _told(client.wish_for_node(node, Wish.DECLINE), output)


@app.command("release")
def release(
    node: NodeArgument, url: UrlOption = None, token_file: TokenFileOption = None, output: FormatOption = Format.TABLE
) -> None:
    """Give a node that is out back to service; of one that is kept out, forget the strikes."""
    with connect(url, token_file) as client:
        _told(client.wish_for_node(node, Wish.RELEASE), output)


@app.command("keep-out")
def keep_out(
    node: NodeArgument, url: UrlOption = None, token_file: TokenFileOption = None, output: FormatOption = Format.TABLE
) -> None:
    """Take a node out until `release`, whatever is said of it."""
    with connect(url, token_file) as client:
        _told(client.wish_for_node(node, Wish.KEEP_OUT), output)


@app.command("close-breaker")
def close_breaker(
    url: UrlOption = None, token_file: TokenFileOption = None, output: FormatOption = Format.TABLE
) -> None:
    """Let isolations go on; the breaker opens again if as many are still accused."""
    with connect(url, token_file) as client:
        found = client.close_isolation_breaker()
    if output is Format.JSON:
        say_json(found)
    else:
        say("the next look closes the breaker")


def _say(found: IsolationView) -> None:
    opened_at = found.breaker.opened_at
    say_fields(
        {
            "mode": found.mode.value,
            "frozen": found.frozen,
            "looked at": _moment(found.looked_at),
            "looked by": found.looked_by,
            "fleet": found.fleet,
            "out": len(found.out),
            "breaker": "closed" if opened_at is None else f"open since {_moment(opened_at)}",
        }
    )
    if found.nodes:
        say("")
        say_table(Table(NODES, (_row(node) for node in found.nodes)))
    if found.decisions:
        say("")
        rows = ((each.at, each.act.value, each.node, each.dry_run, each.reason) for each in found.decisions)
        say_table(Table(DECISIONS, rows))


def _row(node: NodeView) -> tuple[object, ...]:
    wish = None if node.wish is None else node.wish.value
    return (
        *(node.node, node.standing.value, node.dry_run, node.since, node.accusation, node.refused),
        *(len(node.strikes), node.probe_at, wish),
    )


def _told(found: NodeView, output: Format) -> None:
    if output is Format.JSON:
        say_json(found)
    else:
        say(f"{found.node} is {found.standing.value}; the next look does it: {found.wish}")


def _moment(at: datetime | None) -> str | None:
    return None if at is None else f"{at:%Y-%m-%d %H:%M:%S}Z"
