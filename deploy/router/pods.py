"""The replicas of a route as pods of Kubernetes: those that are ready and not marked to stop.

The controller marks pods before it lowers a count.  A router that reads the marks stops sending to a pod before the pod
stops; it needs no connection to the controller.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Protocol

import structlog
from pydantic import Field

from api.schemas.names import Name
from deploy.common.errors import ActuationError
from deploy.common.kubernetes_client import Kubernetes
from deploy.common.kubernetes_objects import Pod, PodList, parsed
from deploy.router.router import ReplicaCounts
from deploy.router.settings import Url
from fleet.documents import Frozen

log = structlog.get_logger()


class PodEngines(Frozen):
    """The engines of a route as pods."""

    namespace: Name
    selector: str = Field(min_length=1, max_length=1000, description="Label selector, such as `app=chat`.")
    port: Annotated[int, Field(ge=1, le=65_535)] = 8000


class Addressed(Protocol):
    """An upstream whose addresses may change."""

    def set_urls(self, urls: Iterable[Url]) -> None: ...


@dataclass(slots=True)
class PodReplicas:
    """Reads the pods of all such routes; a call returns the replicas of each."""

    kube: Kubernetes
    engines: Mapping[str, PodEngines]
    upstreams: Mapping[str, Addressed]
    routers: int
    _counts: dict[str, int] = field(default_factory=dict)

    async def __call__(self) -> ReplicaCounts:
        for route, engines in self.engines.items():
            try:
                urls = await self._urls(engines)
            except ActuationError as error:  # the last addresses stay
                log.warning("pods_not_read", route=route, reason=str(error))
                self._counts.setdefault(route, 0)
                continue
            self.upstreams[route].set_urls(urls)
            self._counts[route] = len(urls)
        return ReplicaCounts(replicas=dict(self._counts), routers=self.routers)

    async def _urls(self, engines: PodEngines) -> list[Url]:
        path = f"/api/v1/namespaces/{engines.namespace}/pods"
        pods = parsed(PodList, await self.kube.get(path, labelSelector=engines.selector)).items
        return [url_of(pod, port=engines.port) for pod in receiving(pods)]


def receiving(pods: Iterable[Pod]) -> list[Pod]:
    """Return the pods that get new requests: ready ones without a mark, or all ready ones where all are marked."""
    ready = [pod for pod in pods if pod.ready and pod.status.pod_ip]
    return [pod for pod in ready if not pod.drains] or ready


def url_of(pod: Pod, *, port: int) -> Url:
    address = pod.status.pod_ip
    return f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"
