"""Follows the workloads of Kueue and adds up the watts that the power check has admitted to each row."""

import threading
from dataclasses import dataclass, field
from typing import Any, Final

from kubernetes import client, watch

from deploy.kueue_power.workloads import WATTS
from tests.testbed.gpu_nodes import POWER_DOMAIN_LABEL

GROUP: Final = "kueue.x-k8s.io"
VERSION: Final = "v1beta2"


@dataclass
class PowerWatch:
    """The watts of the admitted jobs of each row, after every change of a workload."""

    api: client.ApiClient
    namespace: str
    rows: tuple[str, ...]
    drawn_w: list[dict[str, float]] = field(default_factory=list)
    _latest: dict[str, tuple[str, float]] = field(default_factory=dict)
    _stopped: threading.Event = field(default_factory=threading.Event)

    def follow(self) -> None:
        listing = client.CustomObjectsApi(self.api).list_namespaced_custom_object
        arguments = (GROUP, VERSION, self.namespace, "workloads")
        watched = watch.Watch()
        while not self._stopped.is_set():
            since = watched.resource_version or "0"
            for event in watched.stream(listing, *arguments, resource_version=since, timeout_seconds=1):
                self._note(event["type"], event["object"])

    def stop(self) -> None:
        self._stopped.set()

    def _note(self, kind: str, workload: dict[str, Any]) -> None:
        name = workload["metadata"]["name"]
        self._latest.pop(name, None)
        if kind != "DELETED" and not has_condition(workload, "Finished"):
            for check in workload.get("status", {}).get("admissionChecks", []):
                for update in check.get("podSetUpdates", []) if check["state"] == "Ready" else []:
                    row = update["nodeSelector"][POWER_DOMAIN_LABEL]
                    self._latest[name] = row, float(update["annotations"][WATTS])
        drawn = dict.fromkeys(self.rows, 0.0)
        for row, watts in self._latest.values():
            drawn[row] += watts
        self.drawn_w.append(drawn)

    def highest_w(self) -> dict[str, float]:
        return {row: max(drawn[row] for drawn in self.drawn_w) for row in self.rows}


def has_condition(workload: dict[str, Any], condition: str) -> bool:
    conditions = workload.get("status", {}).get("conditions", [])
    return any((each["type"], each["status"]) == (condition, "True") for each in conditions)
