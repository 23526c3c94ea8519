"""What probes say of hosts and leaves by themselves: the joint fit once more, with pairs of NICs for edges.

Probes go on where the job does not: while it stands (a checkpoint), and over wires that it has not used yet.  What goes
one way has no acknowledgements, so nothing leaks; over which cables it goes is not known, so a crowded one makes an odd
edge.  Whom only probes accuse is named and never isolated: that the job feels it has to be seen.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from faults.diagnosis import Scope
from faults.fabric import NOWHERE, Fabric, Traffic, Window
from faults.localisation.entities import Indices, Kind
from faults.localisation.reporting import Key, Named
from faults.localisation.settings import LocaliserSettings

if TYPE_CHECKING:
    from faults.localisation.localiser import Localiser, LocaliserState

EVIDENCE: Final = ("one-way-probes", "joint-fit")
SPREAD: Final = 0.02  # log, first guess: pairs of NICs differ less than flows


def fabric_of_pairs(fabric: Fabric, pair: Indices, pairs: int) -> Fabric:
    """An edge for each pair that talks."""
    source, target = np.empty(pairs, np.int64), np.empty(pairs, np.int64)
    source[pair], target[pair] = fabric.source, fabric.target
    nowhere = np.full(pairs, NOWHERE)
    return Fabric(
        source=source, target=target, traffic=np.full(pairs, int(Traffic.RING)), up=nowhere, down=nowhere,
        node=fabric.node, leaf=fabric.leaf,
    )  # fmt: skip


def settings_of_pairs(settings: LocaliserSettings) -> LocaliserSettings:
    """Nothing comes back, and nothing is too short to fill a link."""
    return settings.model_copy(update={"leak": 0.0, "spread": SPREAD})


class ProbePlane:
    """The fit of probes, beside that of traffic."""

    def __init__(self, of_pairs: "Localiser") -> None:
        self._of_pairs = of_pairs

    def step(self, before: "LocaliserState | None", window: Window) -> tuple["LocaliserState", NDArray[np.bool_]]:
        """(state after this window, per pair whether a host or a leaf that is slow lies on its way)."""
        after, _ = self._of_pairs.step(self._of_pairs.start() if before is None else before, window)
        all_of = self._of_pairs.entities
        explained = np.zeros(all_of.pair.size, bool)
        for entity in np.flatnonzero(after.slow[: all_of.of_kind[Kind.UP].start]):
            explained[all_of.edges_of(int(entity))] = True
        return after, explained


def hosts_and_leaves(named: Mapping[Key, Named], *, besides: Mapping[Key, Named]) -> dict[Key, Named]:
    """What probes alone accuse; links are judged where their traffic is."""
    return {
        key: replace(one, diagnosis=one.diagnosis.model_copy(update={"isolate": False, "evidence": EVIDENCE}))
        for key, one in named.items()
        if key[0] in {Scope.NODE, Scope.LEAF} and key not in besides
    }
