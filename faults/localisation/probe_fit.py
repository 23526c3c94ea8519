"""The fit of probes alone: the joint fit on pairs of NICs instead of edges.

Probes continue while the job stands (a checkpoint) and on paths that the job has not used yet.  A probe has no
acknowledgements, so nothing leaks, and its cables are unknown, so a busy cable makes an outlier edge.  A host or leaf
that only probes find is named and never isolated, because its effect on the job is unknown.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from faults.diagnosis import Diagnosis, Scope
from faults.fabric import NOWHERE, Fabric, Traffic
from faults.localisation.entities import Indices
from faults.localisation.reporting import Key, Named
from faults.localisation.settings import LocaliserSettings

EVIDENCE: Final = ("one-way-probes", "joint-fit")
SPREAD: Final = 0.02  # log, first guess: pairs of NICs differ less than flows


class ProbeFit(NamedTuple):
    """The result of the fit of probes in one window."""

    named: Mapping[Key, Named]
    explained: NDArray[np.bool_]  # per pair: a slow host or leaf lies on its path


def fabric_of_pairs(fabric: Fabric, pair: Indices, pairs: int) -> Fabric:
    """Return a fabric with one edge for each pair of NICs with traffic."""
    source, target = np.empty(pairs, np.int64), np.empty(pairs, np.int64)
    source[pair], target[pair] = fabric.source, fabric.target
    nowhere = np.full(pairs, NOWHERE)
    return Fabric(
        source=source, target=target, traffic=np.full(pairs, int(Traffic.RING)), up=nowhere, down=nowhere,
        node=fabric.node, leaf=fabric.leaf,
    )  # fmt: skip


def settings_of_pairs(settings: LocaliserSettings) -> LocaliserSettings:
    """Return the settings without acknowledgements and without short messages."""
    return settings.model_copy(update={"leak": 0.0, "spread": SPREAD})


def reported(named: Mapping[Key, Named], probe_fit: ProbeFit | None, *, min_confidence: float) -> tuple[Diagnosis, ...]:
    """Return the diagnoses that are sure enough, those of `probe_fit` alone last."""
    sure = {key: one for key, one in named.items() if one.diagnosis.confidence >= min_confidence}
    by_probes = {} if probe_fit is None else _hosts_and_leaves(probe_fit.named, besides=sure)
    sure |= {key: one for key, one in by_probes.items() if one.diagnosis.confidence >= min_confidence}
    return tuple(one.diagnosis for one in sure.values())


def _hosts_and_leaves(named: Mapping[Key, Named], *, besides: Mapping[Key, Named]) -> dict[Key, Named]:
    """Leave out links, which the fit of traffic judges."""
    return {
        key: replace(one, diagnosis=one.diagnosis.model_copy(update={"isolate": False, "evidence": EVIDENCE}))
        for key, one in named.items()
        if key[0] in {Scope.NODE, Scope.LEAF} and key not in besides
    }
