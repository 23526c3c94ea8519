"""Stands in for the LeaderWorkerSet controller on a real API server, and installs resource definitions for a test."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kubernetes import client

from tests.testbed.kube_api import KubeApi, is_served, read_manifests
from tests.testbed.manifests import pod_spec
from tests.testbed.waiting import wait_for

GROUP: Final = "leaderworkerset.x-k8s.io"
LABELS: Final = "leaderworkerset.sigs.k8s.io"
SET: Final = ("v1", "leaderworkersets")


def definition(
    published: Path, *, kind: str = "LeaderWorkerSet", group: str = GROUP, version: str = "v1"
) -> dict[str, Any]:
    """Return the published definition; where it is absent, one of the same names that takes any fields."""
    if published.exists():
        (manifest,) = read_manifests(published)
        return manifest
    plural = f"{kind.lower()}s"
    scale = {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.hpaPodSelector",
    }
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{group}",
            # The API server requires this annotation on a definition below *.k8s.io.
            "annotations": {"api-approved.kubernetes.io": "unapproved, only for a test"},
        },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": anything},
                    "subresources": {"status": {}, "scale": scale},
                }
            ],
        },
    }


@contextmanager
def installed(api: KubeApi, manifest: Mapping[str, Any]) -> Iterator[None]:
    """Install a definition during the block, unless the API server has it already."""
    name, spec = manifest["metadata"]["name"], manifest["spec"]
    with api.connect() as connection:
        definitions = client.ApiextensionsV1Api(connection)

        def exists() -> bool:
            return name in {item.metadata.name for item in definitions.list_custom_resource_definition().items}

        if exists():
            yield
            return
        definitions.create_custom_resource_definition(dict(manifest), _preload_content=False)
        kind, version = spec["names"]["kind"], spec["versions"][0]["name"]
        wait_for(lambda: is_served(connection, spec["group"], version, kind), what=f"{kind} on the server")
        try:
            yield
        finally:
            definitions.delete_custom_resource_definition(name)
            wait_for(lambda: not exists(), what=f"end of {name}")


@dataclass(frozen=True)
class LeaderWorkerSets:
    """The LeaderWorkerSets of a namespace."""

    api: client.ApiClient
    namespace: str

    def create(self, name: str, *, replicas: int, size: int, nodes: Mapping[str, str]) -> None:
        template = {"spec": pod_spec(gpus=1, nodes=nodes)}
        body = {
            "apiVersion": f"{GROUP}/v1",
            "kind": "LeaderWorkerSet",
            "metadata": {"name": name},
            "spec": {"replicas": replicas, "leaderWorkerTemplate": {"size": size, "workerTemplate": template}},
        }
        client.CustomObjectsApi(self.api).create_namespaced_custom_object(GROUP, "v1", self.namespace, SET[1], body)

    def reconcile(self) -> None:
        """Create the pods of missing groups, delete those of the highest surplus groups, and report the status."""
        custom = client.CustomObjectsApi(self.api)
        for found in custom.list_namespaced_custom_object(GROUP, "v1", self.namespace, SET[1])["items"]:
            name, template = found["metadata"]["name"], found["spec"]["leaderWorkerTemplate"]
            wanted = {
                f"{name}-{group}" + (f"-{worker}" if worker else ""): (group, worker)
                for group in range(found["spec"].get("replicas", 1))
                for worker in range(template["size"])
            }
            there = self.pods(name)
            core = client.CoreV1Api(self.api)
            for pod in wanted.keys() - set(there):
                core.create_namespaced_pod(self.namespace, _pod(name, pod, *wanted[pod], template))
            for pod in set(there) - wanted.keys():
                core.delete_namespaced_pod(pod, self.namespace, grace_period_seconds=0)
            selector = f"{LABELS}/name={name},{LABELS}/worker-index=0"
            status = {"status": {"replicas": len(there) // template["size"], "hpaPodSelector": selector}}
            address = (GROUP, "v1", self.namespace, SET[1], name)
            custom.patch_namespaced_custom_object_status(*address, status)

    def pods(self, name: str) -> list[str]:
        listed = client.CoreV1Api(self.api).list_namespaced_pod(self.namespace, label_selector=f"{LABELS}/name={name}")
        return sorted(pod.metadata.name for pod in listed.items if not pod.metadata.deletion_timestamp)


def _pod(name: str, pod: str, group: int, worker: int, template: Mapping[str, Any]) -> dict[str, Any]:
    labels = {
        f"{LABELS}/name": name,
        f"{LABELS}/group-index": str(group),
        f"{LABELS}/worker-index": str(worker),
    }
    annotations = {f"{LABELS}/size": str(template["size"])}
    return {
        "metadata": {"name": pod, "labels": labels, "annotations": annotations},
        "spec": template["workerTemplate"]["spec"],
    }
