"""`fleetwright faults quarantine`: manage the rules and the state of the quarantine policy, and request actions."""

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
import yaml

from api.cli.common.console import note, print_line, write
from api.cli.common.errors import EXIT_BAD_INPUT, CommandError
from api.cli.common.files import read_file
from api.cli.common.lazy_groups import new_app
from api.cli.common.options import TokenFileOption, UrlOption
from api.cli.common.output import DocumentFormat, DocumentFormatOption, Format, FormatOption, print_json
from api.cli.common.remote import connect
from api.cli.common.tables import Column, Table, format_value, moment, number, print_fields, print_table
from api.schemas.quarantine import NodeView, QuarantineView
from faults.quarantine import OperatorAction, PolicyMode, QuarantineRules

NODES = (
    Column("node"),
    Column("state"),
    Column("dry run", show=format_value),
    moment("since"),
    Column("diagnosis"),
    Column("refused by"),
    number("strikes"),
    moment("probe at"),
    Column("pending action"),
)
DECISIONS = (
    moment("at"),
    Column("decision"),
    Column("node"),
    Column("dry run", show=format_value),
    Column("reason"),
)

NodeArgument = Annotated[str, typer.Argument(metavar="NODE", help="The node's name in the fleet.")]

app = new_app()


@app.callback()
def quarantine() -> None:
    """Show the policy and its nodes; approve, release and cordon nodes."""


@app.command("show")
def show(url: UrlOption = None, token_file: TokenFileOption = None, output: FormatOption = Format.TABLE) -> None:
    """Show the nodes with a history, and the newest decisions."""
    with connect(url, token_file) as client:
        found = client.get_quarantine()
    if output is Format.JSON:
        print_json(found)
    else:
        _print(found)


@app.command("rules")
def rules(
    url: UrlOption = None, token_file: TokenFileOption = None, output: DocumentFormatOption = DocumentFormat.YAML
) -> None:
    """Print the rules in force, as `set` takes them."""
    with connect(url, token_file) as client:
        found = client.get_quarantine_rules()
    note(f"version {found.etag}")
    rules_now = found.document.rules
    if output is DocumentFormat.JSON:
        print_json(rules_now)
    else:  # also the rules with their shipped values, so that the file lists all of them
        write(yaml.safe_dump(rules_now.model_dump(mode="json"), sort_keys=False))


@app.command("set")
def set_rules(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="Rules as `rules` prints them.", show_default="those in force"),
    ] = None,
    mode: Annotated[
        PolicyMode | None, typer.Option(help="Effect of a decision.", show_default="as in the rules")
    ] = None,
    etag: Annotated[
        str | None, typer.Option(metavar="ETAG", help="Replace only this version; default: the current one.")
    ] = None,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Set the rules from a file, or only the mode."""
    if file is None and mode is None:
        raise CommandError("faults quarantine set: give FILE, --mode or both", exit_code=EXIT_BAD_INPUT)
    given = None if file is None else read_file(file, QuarantineRules)
    with connect(url, token_file) as client:
        now = client.get_quarantine_rules()
        wanted = given or now.document.rules
        if mode is not None:
            wanted = wanted.model_copy(update={"mode": mode})
        stored = client.replace_quarantine_rules(wanted, if_match=etag or now.etag)
    if output is Format.JSON:
        print_json(stored.document)
    else:
        print_line(f"quarantine rules: version {stored.etag}, mode {stored.document.rules.mode.value}")


@app.command("approve")
def approve(
    node: NodeArgument, url: UrlOption = None, token_file: TokenFileOption = None, output: FormatOption = Format.TABLE
) -> None:
    """Quarantine a proposed node, if no guardrail refuses."""
    _request(node, OperatorAction.APPROVE, url, token_file, output)


@app.command("decline")
def decline(
    node: NodeArgument, url: UrlOption = None, token_file: TokenFileOption = None, output: FormatOption = Format.TABLE
) -> None:
    """Keep a proposed node in service for this diagnosis."""
    _request(node, OperatorAction.DECLINE, url, token_file, output)


@app.command("release")
def release(
    node: NodeArgument, url: UrlOption = None, token_file: TokenFileOption = None, output: FormatOption = Format.TABLE
) -> None:
    """Return a node to service, on probation; clears the strikes of a cordoned node."""
    _request(node, OperatorAction.RELEASE, url, token_file, output)


@app.command("cordon")
def cordon(
    node: NodeArgument, url: UrlOption = None, token_file: TokenFileOption = None, output: FormatOption = Format.TABLE
) -> None:
    """Take a node out of service until `release`."""
    _request(node, OperatorAction.CORDON, url, token_file, output)


@app.command("reset-breaker")
def reset_breaker(
    url: UrlOption = None, token_file: TokenFileOption = None, output: FormatOption = Format.TABLE
) -> None:
    """Allow quarantines again; the breaker opens again if as many nodes are still suspected."""
    with connect(url, token_file) as client:
        found = client.reset_quarantine_breaker()
    if output is Format.JSON:
        print_json(found)
    else:
        print_line("the next evaluation closes the breaker")


def _request(node: str, action: OperatorAction, url: str | None, token_file: Path | None, output: Format) -> None:
    with connect(url, token_file) as client:
        found = client.request_node_action(node, action)
    if output is Format.JSON:
        print_json(found)
    else:
        print_line(f"{found.node} is {found.state.value}; the next evaluation applies: {found.pending_action}")


def _print(found: QuarantineView) -> None:
    opened_at = found.breaker.opened_at
    print_fields(
        {
            "mode": found.mode.value,
            "frozen": found.frozen,
            "evaluated at": _moment(found.evaluated_at),
            "evaluated by": found.evaluated_by,
            "fleet": found.fleet,
            "out of service": len(found.out_of_service),
            "breaker": "closed" if opened_at is None else f"open since {_moment(opened_at)}",
        }
    )
    if found.nodes:
        print_line("")
        print_table(Table(NODES, (_row(node) for node in found.nodes)))
    if found.decisions:
        print_line("")
        rows = ((each.at, each.kind.value, each.node, each.dry_run, each.reason) for each in found.decisions)
        print_table(Table(DECISIONS, rows))


def _row(node: NodeView) -> tuple[object, ...]:
    action = None if node.pending_action is None else node.pending_action.value
    return (
        *(node.node, node.state.value, node.dry_run, node.since, node.diagnosis_id, node.refused_by),
        *(len(node.strikes), node.probe_at, action),
    )


def _moment(at: datetime | None) -> str | None:
    return None if at is None else f"{at:%Y-%m-%d %H:%M:%S}Z"
