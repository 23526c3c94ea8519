"""The findings of one evaluation."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from faults.slow.sparse_fit import Entity


@dataclass(frozen=True, slots=True)
class Slow:
    entity: Entity
    saved: float  # share of the window's time
    own: bool  # against its own history; otherwise against its peers
    standing: Mapping[Entity, float] = field(default_factory=dict)  # log likelihoods of it and of its alternatives
    probed: bool = False  # found by probes

    @property
    def key(self) -> Hashable:
        """Return the key of persistence: a NIC in any direction, or a link."""
        return self.entity.place
