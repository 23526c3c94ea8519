"""`fleetwright faults paths`: plan a job's paths, compare them with hashing, and write the path table."""

import csv
import dataclasses
import io
import json
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from api.cli.common.console import note, print_line
from api.cli.common.errors import InputError, input_errors
from api.cli.common.files import read_document, read_file, read_text, require_writable, violations_of, write_whole
from api.cli.common.lazy_groups import new_app
from api.cli.common.output import Format, FormatOption
from api.cli.common.tables import Column, Table, number, print_table
from api.schemas.fault_paths import PathsResponse
from faults.path_planning import (
    Plan,
    Repair,
    Row,
    Traffic,
    TrafficJob,
    choices,
    make_plan,
    probes,
    read_probed,
    repair,
    traffic_of,
)
from faults.path_planning.job import Cable
from faults.path_planning.ports import hccl_file
from fleet.documents import Document, RuleError, read_model
from fleet.errors import DocumentError
from fleet.topology import Topology

app = new_app()

COLUMNS = (Column("tier"), number("maximum utilisation, planned", decimals=3))


class ChoiceForm(StrEnum):
    CSV = "csv"
    JSON = "json"
    HCCL = "hccl"


@app.command(name="paths")
def paths_command(
    topology: Annotated[Path, typer.Argument(metavar="TOPOLOGY", help="Switches, uplinks and nodes.")],
    job: Annotated[Path, typer.Argument(metavar="JOB", help="Rings, demand, bonds, dead links.")],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write the path and source port of every connection.")
    ] = None,
    form: Annotated[ChoiceForm, typer.Option(help="Of --out; hccl: MultiQpSrcPort.cfg.")] = ChoiceForm.CSV,
    probed: Annotated[
        Path | None, typer.Option(metavar="FILE", help="CSV of from,to,port,path from probes in the fabric.")
    ] = None,
    probe_plan: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the ports to probe for each pair of NICs.")
    ] = None,
    dies: Annotated[
        list[str] | None,
        typer.Option(metavar="LOWER,UPPER[,CABLE]", help="Then fail this link and plan again, with few moves."),
    ] = None,
    draws: Annotated[
        int, typer.Option(min=1, max=10_000, help="Random draws of source ports for the comparison with hashing.")
    ] = 100,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the draws.")] = 0,
    output: FormatOption = Format.TABLE,
) -> None:
    """Assign a path to each connection of a job.

    Utilisation is the traffic of a port or cable over its capacity.  The fractional optimum is a proven lower bound for
    every assignment that loads all ports of a NIC equally.
    """
    for path in (out, probe_plan):
        if path is not None:
            require_writable(path)
    traffic = _traffic(topology, read_document(job))
    with violations_of(str(job)):
        plan = make_plan(traffic)
    repaired = _repaired(job, plan, dies or ())
    plan = plan if repaired is None else repaired.plan
    with violations_of(str(probed)):
        probed_paths = None if probed is None else read_probed(read_text(probed).splitlines())
    rows = choices(plan, probed_paths)
    response = _response(plan, repaired, rows, draws=draws, seed=seed)
    if out is not None:
        write_whole(out, _written(rows, plan.traffic, form).encode())
    if probe_plan is not None:
        write_whole(probe_plan, _csv(probes(plan)).encode())
    if output is Format.JSON:
        print_line(json.dumps(response, indent=2))
    else:
        _print(response, by_model=probed is None)


def _traffic(topology: Path, document: Document) -> Traffic:
    fabric = read_file(topology, Topology)
    job = read_model(document, TrafficJob)
    try:
        return traffic_of(job, fabric.index)
    except RuleError as error:
        raise DocumentError(
            name=document.name, problems=[document.problem(path, message) for path, message in error.violations]
        ) from error


def _repaired(job: Path, plan: Plan, dies: Sequence[str]) -> Repair | None:
    if not dies:
        return None
    failed: list[int] = []
    for text in dies:
        lower, _, rest = text.partition(",")
        upper, _, cable = rest.partition(",")
        if not lower or not upper or (cable and not (cable.isascii() and cable.isdigit() and len(cable) < 10)):
            raise InputError(f"--dies: expected LOWER,UPPER or LOWER,UPPER,CABLE, got {text!r}")
        with input_errors(RuleError, prefix="--dies: "):
            # Not validated like a document's field: the fabric's error message is more helpful than a pattern.
            link = Cable.model_construct(lower=lower, upper=upper, cable=int(cable) if cable else None)
            failed += plan.traffic.clos.cables(link)
    with violations_of(str(job)):
        return repair(plan, failed)


def _response(plan: Plan, repaired: Repair | None, rows: Sequence[Row], *, draws: int, seed: int) -> dict[str, Any]:
    response = PathsResponse.of(plan, rows, draws=draws, seed=seed, repair=repaired)
    return response.model_dump(mode="json", exclude_none=True)


def _print(response: dict[str, Any], *, by_model: bool) -> None:
    load, hash_ = response["planned"], response["hashed"]
    print_line(
        f"{response['job']}: {response['flows']:,} flows of {response['rings']:,} rings, "
        f"{response['connections']:,} connections"
    )
    print_line("")
    print_table(Table(COLUMNS, list(load["by_tier"].items())))
    print_line("")
    print_line(
        f"- maximum utilisation {load['greatest']:.3f}; "
        f"no assignment is below {response['fractional_optimum']:.3f} (proof: {response['proof']})"
    )
    print_line(
        f"- hashed: mean {hash_['mean']:.3f} of {hash_['draws']:,} draws "
        f"(p50 {hash_['p50']:.3f}, p99 {hash_['p99']:.3f}, maximum {hash_['worst']:.3f})"
    )
    print_line(
        f"- slowest ring: {load['slowest_ring']:.1%} of its demand planned, {hash_['slowest_ring_mean']:.1%} hashed"
    )
    print_line(f"- {response['split_flows']:,} split flows; {load['over']:,} ports and cables above 1")
    if "repair" in response:
        print_line(
            "- after the link failure: {moved} connections moved, {opened} opened, {closed} closed".format(
                **response["repair"]
            )
        )
    if by_model:
        note("source ports follow a model hash, not this fabric's: probe it (--probe-plan) and give --probed")
    if response["without_port"]:
        note(f"{response['without_port']:,} connections: no source port is known for the planned path")


def _written(rows: Sequence[Row], traffic: Traffic, form: ChoiceForm) -> str:
    if form is ChoiceForm.JSON:
        return json.dumps([dataclasses.asdict(row) for row in rows], indent=1) + "\n"
    if form is ChoiceForm.HCCL:
        with violations_of("--form hccl"):
            return hccl_file(rows, traffic)
    return _csv(rows)


def _csv(rows: Sequence[Any]) -> str:
    stream = io.StringIO()
    if rows:
        writer = csv.DictWriter(stream, [field.name for field in dataclasses.fields(rows[0])], lineterminator="\n")
        writer.writeheader()
        writer.writerows(map(dataclasses.asdict, rows))
    return stream.getvalue()
