"""`fleetwright topology discover`: derive the topology from the node labels of a running cluster."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypedDict

import httpx
import typer

from api.cli.catalogues.kinds import known_gpus
from api.cli.common.console import note
from api.cli.common.errors import InputError, input_errors
from api.cli.common.files import read_file
from api.cli.common.lazy_groups import new_app
from api.cli.common.options import GpusOption
from api.cli.common.output import DocumentFormat, DocumentFormatOption, print_document
from deploy.common.topology_discovery import UnusableSourceError, discover_kubernetes, discover_ray
from fleet.topology import LabelNames

app = new_app()


class _Reading(TypedDict):
    labels: LabelNames
    gpu_namer: Callable[[str], str]


@app.command()
def discover(
    ray: Annotated[str | None, typer.Option(metavar="URL", help="Dashboard of a Ray cluster.")] = None,
    kubernetes: Annotated[
        bool, typer.Option("--kubernetes", help="A Kubernetes cluster, found as by kubectl.")
    ] = False,
    context: Annotated[str | None, typer.Option(metavar="NAME", help="Context of the kubeconfig.")] = None,
    kubeconfig: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Instead of KUBECONFIG or ~/.kube/config.")
    ] = None,
    labels: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File with label names that differ from the defaults.")
    ] = None,
    gpus: GpusOption = None,
    output: DocumentFormatOption = DocumentFormat.YAML,
) -> None:
    """Read the topology from the labels of a running cluster.

    The topology goes to stdout, for `topology push -`.  The command reports missing labels with their nodes on stderr
    and guesses nothing.  Contradicting labels are an error.
    """
    if (ray is None) != kubernetes:
        raise InputError("give either --ray URL or --kubernetes")
    if ray is not None and (context or kubeconfig):
        raise InputError("--context and --kubeconfig go with --kubernetes")
    names = LabelNames() if labels is None else read_file(labels, LabelNames)
    catalogue = known_gpus(gpus)
    reading = _Reading(labels=names, gpu_namer=lambda label: catalogue.get(label).name)
    with input_errors(UnusableSourceError):
        if ray is not None:
            with httpx.Client() as http:
                found = discover_ray(ray, http=http, **reading)
        else:
            found = discover_kubernetes(kubeconfig=kubeconfig, context=context, **reading)
    for unknown in found.unknown:
        note(str(unknown))
    print_document(found.topology, output)
