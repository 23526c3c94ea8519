"""`fleetwright planning-loops`: manage planning loops, and show what they observe and decide."""

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from api.cli.common.console import note, print_line
from api.cli.common.files import read_file
from api.cli.common.lazy_groups import new_app
from api.cli.common.options import FileArgument, ProjectOptions
from api.cli.common.remote import put_document
from api.cli.common.tables import Column, Table, moment, number, print_fields, print_table, table_of
from api.client import Client, NotFoundError
from api.schemas.planning_loops import (
    LatencyStatistics,
    PlanningLoop,
    PlanningLoopSpec,
    PlanningLoopStatus,
    SizeStatistics,
    WorkloadDemand,
)
from api.schemas.targets import Mode

COLUMNS = (
    Column("planning loop"),
    Column("mode"),
    Column("targets"),
    Column("phase"),
    Column("wanted"),
    moment("reported"),
    Column("message"),
)
DEMAND = (
    Column("workload"),
    number("arrivals/s", decimals=2),
    number("completions/s", decimals=2),
    number("forecast/s", decimals=2),
    number("input mean"),
    number("input p99"),
    number("output mean"),
    number("output p99"),
    number("TTFT p99 s", decimals=3),
    number("TPOT p99 s", decimals=4),
    number("running", decimals=1),
    number("queued", decimals=1),
    number("KV use %"),
)
WANTED = (Column("target"), Column("part"), number("wanted"))
DRIFT = (  # of a pair: part, report
    Column("part", of=lambda each: each[0]),
    number("TPOT observed/predicted", decimals=3, of=lambda each: each[1].tpot_ratio),
    number("TTFT observed/predicted", decimals=3, of=lambda each: each[1].ttft_ratio),
    number("rate scale", decimals=3, of=lambda each: each[1].rate_scale),
    Column("refit", show=lambda needed: "needed" if needed else "no", of=lambda each: each[1].needs_refit),
)
HEAD = frozenset({"phase", "observed_at", "window_end", "plan_id", "message"})

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The planning loop's name.")]

app = new_app()


@app.command("list")
def list_loops(service: ProjectOptions) -> None:
    """List the planning loops, each with the controller's last report."""
    with service.connect() as client:
        statuses = {each.planning_loop: each.status for each in client.iter_planning_loop_statuses()}
        loops = [(loop, statuses.get(loop.name)) for loop in client.iter_planning_loops()]
    if service.printed({"planning_loops": [_json(loop, status) for loop, status in loops]}):
        return
    print_table(Table(COLUMNS, (_row(loop, status) for loop, status in loops)))


@app.command("show")
def show(service: ProjectOptions, name: NameArgument) -> None:
    """Show the specification of one planning loop."""
    with service.connect() as client:
        _print_loop(client.get_planning_loop(name).document, service)


@app.command("put")
def put(service: ProjectOptions, name: NameArgument, file: FileArgument) -> None:
    """Create a planning loop, or replace its specification."""
    spec = read_file(file, PlanningLoopSpec)
    with service.connect() as client:
        loop = put_document(
            create=lambda: client.create_planning_loop(name, spec),
            replace=lambda tag: client.replace_planning_loop(name, spec, if_match=tag),
            current=lambda: client.get_planning_loop(name).etag,
        ).document
    _print_loop(loop, service)


@app.command("set")
def change(
    service: ProjectOptions,
    name: NameArgument,
    mode: Annotated[Mode, typer.Option(help="observe, recommend a plan, or apply it to the targets.")],
) -> None:
    """Change the mode of a planning loop."""
    with service.connect() as client:
        found = client.get_planning_loop(name)
        spec = found.document.spec.model_copy(update={"mode": mode})
        loop = client.replace_planning_loop(name, spec, if_match=found.etag).document
    _print_loop(loop, service)


@app.command("delete")
def delete(service: ProjectOptions, name: NameArgument) -> None:
    """Delete a planning loop.  Its targets keep their plans."""
    with service.connect() as client:
        client.delete_planning_loop(name, if_match=client.get_planning_loop(name).etag)
    if not service.printed({"name": name, "deleted": True}):
        print_line(f"planning loop {name} is deleted")


@app.command("status")
def status(service: ProjectOptions, name: NameArgument) -> None:
    """Show the last window: phase, problems, demand, wanted replicas, and drift of the predictions."""
    with service.connect() as client:
        loop = client.get_planning_loop(name).document
        found = _status(client, name)
    if service.printed(_json(loop, found)):
        return
    if found is None:
        note(f"planning loop {name}: no report yet; does a controller run?")
        return
    print_fields({"planning loop": name, "mode": loop.spec.mode} | found.model_dump(mode="json", include=set(HEAD)))
    for problem in found.problems:
        print_line(f"problem: {problem}")
    for table in _tables(found):
        print_line("")
        print_table(table)


def _status(client: Client, name: str) -> PlanningLoopStatus | None:
    try:
        return client.get_planning_loop_status(name)
    except NotFoundError:
        return None


def _tables(found: PlanningLoopStatus) -> Iterator[Table]:
    if found.demand:
        yield Table(DEMAND, (_demand_row(name, demand) for name, demand in sorted(found.demand.items())))
    if found.wanted:
        yield Table(WANTED, list(_wanted(found)))
    if found.drift:
        yield table_of(DRIFT, sorted(found.drift.items()))


def _demand_row(name: str, demand: WorkloadDemand) -> tuple[object, ...]:
    rates = (demand.arrivals_rps, demand.completions_rps, demand.forecast_rps)
    sizes = (*_size(demand.input_tokens), *_size(demand.output_tokens))
    latencies = (_p99(demand.ttft_s), _p99(demand.tpot_s))
    kv_percent = 100.0 * demand.kv_usage if demand.kv_usage is not None else None
    return (name, *rates, *sizes, *latencies, demand.running, demand.queued, kv_percent)


def _size(tokens: SizeStatistics | None) -> tuple[float | None, float | None]:
    return (tokens.mean, tokens.p99) if tokens is not None else (None, None)


def _p99(latency: LatencyStatistics | None) -> float | None:
    return latency.p99 if latency is not None else None


def _wanted(found: PlanningLoopStatus) -> Iterator[tuple[str, str, int]]:
    for target, parts in sorted(found.wanted.items()):
        for part, replicas in sorted(parts.items()):
            yield target, part, replicas


def _print_loop(loop: PlanningLoop, service: ProjectOptions) -> None:
    if not service.printed(loop):
        print_fields(
            {"planning loop": loop.name, "version": loop.version}
            | loop.spec.model_dump(mode="json", exclude={"request"})
            | {"request": loop.spec.request.model_dump(mode="json", exclude_defaults=True)}
        )


def _json(loop: PlanningLoop, found: PlanningLoopStatus | None) -> dict[str, Any]:
    report = None if found is None else found.model_dump(mode="json", exclude={"state"})
    return loop.model_dump(mode="json") | {"status": report}


def _row(loop: PlanningLoop, found: PlanningLoopStatus | None) -> tuple[object, ...]:
    specified = (loop.name, loop.spec.mode, ", ".join(sorted(loop.spec.targets.values())))
    if found is None:
        return (*specified, "no report yet", None, None, None)
    wanted = ", ".join(f"{target} {replicas} {part}" for target, part, replicas in _wanted(found)) or None
    return (*specified, found.phase, wanted, found.observed_at, found.message)
