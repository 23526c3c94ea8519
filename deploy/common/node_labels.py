"""The pool and the failure domains of a node, by its labels."""

from collections.abc import Mapping
from typing import Final

from fleet.topology import LabelNames
from fleet.topology.labels import first_set

POOL_LABELS: Final = ("fleetwright.io/pool", "ray.io/accelerator-type")
_NAMES: Final = LabelNames()
KUBERNETES_POOL_LABELS: Final = (*POOL_LABELS, *_NAMES.gpu)


def domains_of(labels: Mapping[str, str]) -> tuple[str, ...]:
    """Return the leaf, the rack and the power domain of a node."""
    levels = (_NAMES.leaf, _NAMES.rack, _NAMES.pdu)
    found = (first_set(labels, names) for names in levels)
    return tuple(dict.fromkeys(name for name in found if name is not None))
