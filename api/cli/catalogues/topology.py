"""`fleetwright topology`: read and replace sites, power, network and nodes."""

from typing import Any

from api.cli.catalogues.documents import document_app
from api.cli.catalogues.kinds import Kind
from api.cli.common.lazy_groups import App, LazyCommand, lazy_group
from api.cli.common.tables import Column, Table, number
from fleet.documents import Document
from fleet.gpus import GpuCatalogue, require_known_gpus
from fleet.topology import Node, Topology

COLUMNS = (Column("node"), Column("site"), Column("power"), Column("leaves"), Column("GPU"), number("GPUs"))


def _discover(_name: str) -> App:
    from api.cli.catalogues.topology_discover import app as discover  # noqa: PLC0415 - on use: needs HTTP clients

    return discover


COMMANDS = {"discover": LazyCommand(_discover, "Read the topology from the labels of a running cluster.")}


def _table(topology: Topology) -> Table:
    index = topology.index
    return Table(
        COLUMNS,
        (
            (
                node.name,
                index.site_of(node.name).name,
                " > ".join(_power_path(topology, node)) or None,
                " ".join(node.leaves) or None,
                node.gpu,
                node.gpus,
            )
            for node in index.nodes.values()
        ),
    )


def _derived(topology: Topology, node: Node) -> dict[str, Any]:
    return {"site": topology.index.site_of(node.name).name, "power_path": _power_path(topology, node)}


def _power_path(topology: Topology, node: Node) -> list[str]:
    return [domain.name for domain in topology.index.power_path(node.name)]


def _require_known(document: Document, topology: Topology, gpus: GpuCatalogue) -> None:
    require_known_gpus(document, topology.gpu_mentions(), gpus)


app = document_app(
    Kind(
        name="topology",
        entry_name="node",
        model=Topology,
        builtin=Topology,
        overlaid=None,  # a file replaces the shipped topology: parts of two trees are no tree
        table=_table,
        names=lambda topology: topology.index.nodes,
        entry=lambda topology, name: topology.index.node(name),
        derived=_derived,
        require_known=_require_known,
    ),
    cls=lazy_group(COMMANDS),
)
