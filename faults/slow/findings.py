"""What one look accuses."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from faults.slow.sparse_fit import Entity


@dataclass(frozen=True, slots=True)
class Slow:
    """One accused entity in one window."""

    entity: Entity
    saved: float  # share of the window's time
    own: bool  # against its own history; else against its peers
    standing: Mapping[Entity, float] = field(default_factory=dict)  # log likelihoods of it and of its rivals
    probed: bool = False  # found by probes

    @property
    def key(self) -> Hashable:
        """What persistence counts: a NIC whatever its direction, a link."""
        return self.entity.place
