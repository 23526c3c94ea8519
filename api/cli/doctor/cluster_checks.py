"""Checks the rights of the pod's service account against what the chart grants to it."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from api.cli.doctor.findings import Check, Finding, failure, ok, skipped
from deploy.common.kubernetes_client import KubernetesAccess, KubernetesServer, kubernetes_server
from deploy.common.topology_discovery import UnusableSourceError

REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class Right(NamedTuple):
    group: str
    resource: str
    verb: str

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}{'.' if self.group else ''}{self.group}"


# Of helm/fleetwright/templates/controller/rights.yaml; a test compares both.
CONTROLLER_RIGHTS: Final = (
    Right("ray.io", "rayclusters", "get"),
    Right("ray.io", "rayclusters", "patch"),
    Right("", "pods", "list"),
)


# Of helm/fleetwright/templates/api/rights.yaml.
REVIEW_RIGHT: Final = Right("authentication.k8s.io", "tokenreviews", "create")


@dataclass(frozen=True, slots=True)
class Cluster:
    access: KubernetesAccess
    namespaces: Sequence[str]  # none: that of the pod
    reviews_tokens: bool = False  # this is an API that accepts tokens of service accounts


async def rights(cluster: Cluster) -> Finding:
    """Request a review of each right that the controller needs to scale RayClusters, or the API to review tokens."""
    if cluster.access.kubeconfig is None and "KUBERNETES_SERVICE_HOST" not in os.environ:
        return skipped("this process is not in a Kubernetes cluster; --kubeconfig names one")
    try:
        async with kubernetes_server(cluster.access) as server:
            if cluster.reviews_tokens and not cluster.namespaces:
                return await _may_review(server)
            namespaces = cluster.namespaces or (_own_namespace(),)
            missing = [
                f"{right} in {namespace}"
                for namespace in namespaces
                for right in CONTROLLER_RIGHTS
                if not await _is_allowed(server, right, namespace)
            ]
    except UnusableSourceError as error:
        return skipped(f"no access to the cluster: {error}")
    if missing:
        return failure(
            f"not allowed: {', '.join(missing)}",
            repair="set controller.kubernetes.enabled and controller.kubernetes.namespaces in the values of the chart",
        )
    return ok(f"the account may scale RayClusters in {', '.join(namespaces)}")


async def _may_review(server: KubernetesServer) -> Finding:
    if await _is_allowed(server, REVIEW_RIGHT, ""):
        return ok("the account may review tokens")
    return failure(f"not allowed: {REVIEW_RIGHT}", repair="set auth.kubernetes.enabled in the values of the chart")


async def _is_allowed(server: KubernetesServer, right: Right, namespace: str) -> bool:
    attributes = {"namespace": namespace, "group": right.group, "resource": right.resource, "verb": right.verb}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    found = await server.post(REVIEWS, review)
    return bool(found.get("status", {}).get("allowed"))


def _own_namespace() -> str:
    try:
        return (ACCOUNT / "namespace").read_text(encoding="utf-8").strip()
    except OSError:
        return "default"


CHECKS: Mapping[str, Check[Cluster]] = {"kubernetes-rights": rights}
