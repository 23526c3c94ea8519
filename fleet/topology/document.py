"""The topology document: the format of the YAML file and of the API."""

from collections.abc import Iterator
from functools import cached_property
from typing import Self

from pydantic import model_validator

from fleet.documents import Frozen, RuleError, Violation
from fleet.topology.elements import Site
from fleet.topology.index import TopologyIndex
from fleet.topology.validation import violations


class Topology(Frozen):
    """Sites with their power trees, networks and nodes, validated; an empty list means that nothing is known."""

    sites: tuple[Site, ...] = ()

    @model_validator(mode="after")
    def _holds_together(self) -> Self:
        RuleError.raise_for(violations(self.sites))
        return self

    @cached_property
    def index(self) -> TopologyIndex:
        return TopologyIndex(self.sites)

    def gpu_mentions(self) -> Iterator[Violation]:
        """Each place where the topology names a GPU type, for `fleet.gpus.unknown_gpus`."""
        for index, site in enumerate(self.sites):
            for position, node in enumerate(site.nodes):
                if node.gpu is not None:
                    yield ("sites", index, "nodes", position, "gpu"), node.gpu
