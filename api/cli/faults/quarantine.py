"""`fleetwright faults quarantine`: manage the rules and the state of the quarantine policy, and request actions."""

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
import yaml

from api.cli.common.console import note, print_line, write
from api.cli.common.errors import InputError
from api.cli.common.files import read_file
from api.cli.common.lazy_groups import new_app
from api.cli.common.options import RemoteOptions, ServiceOptions
from api.cli.common.output import DocumentFormat, DocumentFormatOption, print_json
from api.cli.common.tables import Column, format_value, moment, number, print_fields, print_table, table_of
from api.schemas.quarantine import QuarantineView
from faults.quarantine import OperatorAction, PolicyMode, QuarantineRules

NODES = (
    Column("node", of="node"),
    Column("state", of="state"),
    Column("dry run", show=format_value, of="dry_run"),
    moment("since", of="since"),
    Column("diagnosis", of="diagnosis_id"),
    Column("refused by", of="refused_by"),
    number("strikes", of=lambda node: len(node.strikes)),
    moment("probe at", of="probe_at"),
    Column("pending action", of="pending_action"),
)
DECISIONS = (
    moment("at", of="at"),
    Column("decision", of="kind"),
    Column("node", of="node"),
    Column("dry run", show=format_value, of="dry_run"),
    Column("reason", of="reason"),
)

NodeArgument = Annotated[str, typer.Argument(metavar="NODE", help="The node's name in the fleet.")]

app = new_app()


@app.command("show")
def show(service: RemoteOptions) -> None:
    """Show the nodes with a history, and the newest decisions."""
    with service.connect() as client:
        found = client.get_quarantine()
    if not service.printed(found):
        _print(found)


@app.command("rules")
def rules(service: ServiceOptions, output: DocumentFormatOption = DocumentFormat.YAML) -> None:
    """Print the rules in force, as `set` takes them."""
    with service.connect() as client:
        found = client.get_quarantine_rules()
    note(f"version {found.etag}")
    rules_now = found.document.rules
    if output is DocumentFormat.JSON:
        print_json(rules_now)
    else:  # also the rules with their shipped values, so that the file lists all of them
        write(yaml.safe_dump(rules_now.model_dump(mode="json"), sort_keys=False))


@app.command("set")
def set_rules(
    service: RemoteOptions,
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
) -> None:
    """Set the rules from a file, or only the mode."""
    if file is None and mode is None:
        raise InputError("faults quarantine set: give FILE, --mode or both")
    given = None if file is None else read_file(file, QuarantineRules)
    with service.connect() as client:
        now = client.get_quarantine_rules()
        wanted = given or now.document.rules
        if mode is not None:
            wanted = wanted.model_copy(update={"mode": mode})
        stored = client.replace_quarantine_rules(wanted, if_match=etag or now.etag)
    if not service.printed(stored.document):
        print_line(f"quarantine rules: version {stored.etag}, mode {stored.document.rules.mode.value}")


def _add_action(action: OperatorAction, summary: str) -> None:
    @app.command(action.value, help=summary)
    def request(service: RemoteOptions, node: NodeArgument) -> None:
        with service.connect() as client:
            found = client.request_node_action(node, action)
        if not service.printed(found):
            print_line(f"{found.node} is {found.state.value}; the next evaluation applies: {found.pending_action}")


_add_action(OperatorAction.APPROVE, "Quarantine a proposed node, if no guardrail refuses.")
_add_action(OperatorAction.DECLINE, "Keep a proposed node in service for this diagnosis.")
_add_action(OperatorAction.RELEASE, "Return a node to service, on probation; clears the strikes of a cordoned node.")
_add_action(OperatorAction.CORDON, "Take a node out of service until `release`.")


@app.command("reset-breaker")
def reset_breaker(service: RemoteOptions) -> None:
    """Allow quarantines again; the breaker opens again if as many nodes are still suspected."""
    with service.connect() as client:
        found = client.reset_quarantine_breaker()
    if not service.printed(found):
        print_line("the next evaluation closes the breaker")


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
        print_table(table_of(NODES, found.nodes))
    if found.decisions:
        print_line("")
        print_table(table_of(DECISIONS, found.decisions))


def _moment(at: datetime | None) -> str | None:
    return None if at is None else f"{at:%Y-%m-%d %H:%M:%S}Z"
