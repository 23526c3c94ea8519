"""`fleetwright nodes`: every node of a service's fleet, or one of them."""

import itertools
from typing import Annotated

import typer

from api.cli.common.errors import InputError
from api.cli.common.lazy_groups import new_app
from api.cli.common.options import RemoteOptions
from api.cli.common.tables import NOTHING, Column, print_fields, print_table, table_of
from api.schemas.nodes import FleetNode
from faults.quarantine import NodeState

COLUMNS = (
    Column("node", of="name"),
    Column("state", of=lambda node: _state(node)),  # noqa: PLW0108 - defined below
    Column("gpus", of=lambda node: _gpus(node)),  # noqa: PLW0108
    Column("site", of=lambda node: node.place and node.place.site),
    Column("rack", of=lambda node: node.place and next((each.name for each in reversed(node.place.power)), None)),
    Column("diagnoses", of=lambda node: ", ".join(each.fault.value for each in node.diagnoses) or None),
    Column("case", of=lambda node: node.case and node.case.stage.value),
    Column("jobs", of=lambda node: ", ".join(_jobs(node)) or None),
)

app = new_app()


@app.command()
def nodes(
    service: RemoteOptions,
    name: Annotated[str | None, typer.Argument(metavar="NODE", help="Only this node.", show_default="all")] = None,
    most: Annotated[int, typer.Option("--most", metavar="N", min=1, help="Maximum number of nodes, by name.")] = 1_000,
    state: Annotated[NodeState | None, typer.Option("--state", help="Only nodes in this state.")] = None,
    gpu: Annotated[str | None, typer.Option("--gpu", metavar="GPU", help="Only nodes with this GPU.")] = None,
    diagnosed: Annotated[
        bool | None, typer.Option("--diagnosed/--not-diagnosed", help="Only nodes with, or without, a diagnosis.")
    ] = None,
) -> None:
    """List the nodes of the fleet with their state, or show one."""
    if name is None:
        with service.connect() as client:
            found = list(itertools.islice(client.iter_nodes(state=state, gpu=gpu, has_diagnosis=diagnosed), most))
        if not service.printed(found):
            print_table(table_of(COLUMNS, found))
        return
    if (state, gpu, diagnosed) != (None, None, None):
        raise InputError("--state, --gpu and --diagnosed select from all nodes: give no NODE with them")
    with service.connect() as client:
        node = client.get_node(name)
    if not service.printed(node):
        print_fields(_fields(node))


def _fields(node: FleetNode) -> dict[str, object]:
    place, case = node.place, node.case
    power = place.power if place is not None else ()
    return {
        "node": node.name,
        "state": _state(node),
        "in the last evaluation": node.evaluated,
        "gpus": _gpus(node) if place is not None else None,
        "site": place.site if place is not None else None,
        "power": " > ".join(each.name for each in power) or None,
        "budgets": ", ".join(f"{each.name} {each.budget_w:g} W" for each in power if each.budget_w is not None) or None,
        "leaves": " ".join(place.leaves) or None if place is not None else None,
        "scale-up domain": place.scale_up_domain if place is not None else None,
        **{f"diagnosis {each.id}": f"{each.fault} of {each.scope}, job {each.job}" for each in node.diagnoses},
        "case": f"{case.id}: {case.stage} since {case.since:%Y-%m-%d %H:%M:%S}" if case is not None else None,
        "runs": ", ".join(case.runs) or None if case is not None else None,
    }


def _state(node: FleetNode) -> str:
    simulated = node.quarantine is not None and node.quarantine.dry_run
    return f"{node.state.value} (simulated)" if simulated else node.state.value


def _gpus(node: FleetNode) -> str:
    return f"{node.place.gpus} {node.place.gpu or ''}".rstrip() if node.place is not None else NOTHING


def _jobs(node: FleetNode) -> dict[str, None]:
    return dict.fromkeys([*(each.job for each in node.diagnoses), *(node.case.runs if node.case is not None else ())])
