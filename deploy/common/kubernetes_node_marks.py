"""The marks on Kubernetes nodes: our quarantine, and those of other tools, which are never undone.  Pure.

    mark                                                   written by
    annotation fleetwright.io/quarantine                   us: the case, and whether the case set the cordon
    taint fleetwright.io/quarantine=CASE:NoSchedule        us
    condition FleetwrightHealthy                           us
    annotation, label, taints and conditions               NVSentinel
    conditions                                             node-problem-detector
    taints                                                 Karpenter, cluster-autoscaler
    a cordon without our annotation                        a person, or any tool

Node conditions have no common polarity, so only known types count.  A cordon by NVSentinel because of our own events is
not another owner.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from fleet.stock.node_marks import (
    AUTOSCALER_TAINTS,
    DETECTOR_CONDITIONS,
    SENTINEL_CONDITIONS,
    SENTINEL_LABEL,
    SENTINEL_TAINTS,
    is_cordoned,
    is_ready,
)

QUARANTINE: Final = "fleetwright.io/quarantine"  # annotation and taint

AGENT: Final = "fleetwright"  # our name in the events that NVSentinel receives
SENTINEL_EVENT: Final = "quarantineHealthEvent"
_SOURCES: Final = {"nvsentinel": SENTINEL_CONDITIONS, "node-problem-detector": DETECTOR_CONDITIONS}


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineMark:
    """Our annotation.  It is written in one patch with the cordon and the taint."""

    case: str
    cordoned: bool  # the case set the cordon; false: the node was cordoned before

    @property
    def text(self) -> str:
        return json.dumps({"case": self.case, "cordoned": self.cordoned}, separators=(",", ":"))


def own_mark(node: Mapping[str, Any]) -> QuarantineMark | None:
    """Return our annotation; one that is not valid counts as a node that was cordoned before."""
    text = annotations_of(node).get(QUARANTINE)
    if text is None:
        return None
    try:
        found = json.loads(text)
        return QuarantineMark(case=str(found["case"]), cordoned=found["cordoned"] is True)
    except (ValueError, KeyError, TypeError):
        return QuarantineMark(case="", cordoned=False)


def owner_of(node: Mapping[str, Any]) -> str | None:
    """Return who has taken the node out of service, if not Fleetwright."""
    held = other_tool(node)
    if held is not None:
        return None if _agents(annotations_of(node).get(SENTINEL_EVENT)) == {AGENT} else held
    mark = own_mark(node)
    is_foreign = is_cordoned(node) and not (mark is not None and mark.cordoned)
    return "cordoned in Kubernetes" if is_foreign else None


def other_tool(node: Mapping[str, Any]) -> str | None:
    """Return the tool whose marks the node carries, even if the tool acts because of our own events."""
    annotation, label = annotations_of(node).get(SENTINEL_EVENT), labels_of(node).get(SENTINEL_LABEL)
    taints = taint_keys(node)
    if annotation or label or taints & SENTINEL_TAINTS:
        return f"NVSentinel ({label or 'quarantined'})"
    return f"taint {min(taints & AUTOSCALER_TAINTS)}" if taints & AUTOSCALER_TAINTS else None


def faults_of(node: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Iterate over the conditions by which other tools report a fault, with the name of the tool."""
    for condition in conditions_of(node):
        for source, kinds in _SOURCES.items():
            if condition["type"] in kinds and condition["status"] == "True":
                yield source, condition


def is_available(node: Mapping[str, Any]) -> bool:
    """Return whether the node takes work."""
    return is_ready(node) and not is_cordoned(node) and not taint_keys(node) & (SENTINEL_TAINTS | AUTOSCALER_TAINTS)


def annotations_of(node: Mapping[str, Any]) -> Mapping[str, str]:
    return node["metadata"].get("annotations") or {}


def labels_of(node: Mapping[str, Any]) -> Mapping[str, str]:
    return node["metadata"].get("labels") or {}


def taints_of(node: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return (node.get("spec") or {}).get("taints") or []


def taint_keys(node: Mapping[str, Any]) -> set[str]:
    return {each["key"] for each in taints_of(node)}


def conditions_of(node: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return (node.get("status") or {}).get("conditions") or []


def _agents(annotation: str | None) -> set[str]:
    """Return the monitors whose events made NVSentinel quarantine the node."""
    try:
        return set(_values_of("agent", json.loads(annotation or "null")))
    except ValueError:
        return set()


def _values_of(key: str, value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, each in value.items():
            if name == key and isinstance(each, str):
                yield each
            yield from _values_of(key, each)
    elif isinstance(value, list):
        for each in value:
            yield from _values_of(key, each)
