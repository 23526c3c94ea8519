"""Which path an object of some kind has, from the API server's own list of resources."""

from dataclasses import dataclass
from http import HTTPStatus

from api.schemas.applications import ScaledObject
from deploy.common.errors import ActuationError
from deploy.common.kubernetes_client import Kubernetes, RefusedError
from deploy.common.kubernetes_objects import ObjectPart, parsed


class _Resource(ObjectPart):
    name: str
    kind: str
    namespaced: bool = False


class _ResourceList(ObjectPart):
    resources: tuple[_Resource, ...] = ()

    @property
    def objects(self) -> list[_Resource]:
        """Return the resources with a namespace, without subresources."""
        return [each for each in self.resources if each.namespaced and "/" not in each.name]

    @property
    def scalable(self) -> list[_Resource]:
        """Return the resources with a scale subresource and a namespace."""
        names = {resource.name for resource in self.resources}
        return [each for each in self.resources if each.namespaced and f"{each.name}/scale" in names]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalePath:
    object: str  # of the object itself

    @property
    def scale(self) -> str:
        return f"{self.object}/scale"


def group_of(api_version: str) -> str:
    """Return the API group; the core group is empty."""
    group, separator, _ = api_version.rpartition("/")
    return group if separator else ""


async def find_path(kube: Kubernetes, scaled: ScaledObject, *, namespace: str, needs_scale: bool = True) -> ScalePath:
    """Raise ActuationError where the API server has no such kind, or the kind has no scale subresource."""
    base = f"/apis/{scaled.api_version}" if group_of(scaled.api_version) else f"/api/{scaled.api_version}"
    try:
        found = parsed(_ResourceList, await kube.get(base))
    except RefusedError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        raise ActuationError(f"the API server does not serve {scaled.api_version}: {error}") from error
    for resource in found.scalable if needs_scale else found.objects:
        if resource.kind == scaled.kind:
            return ScalePath(object=f"{base}/namespaces/{namespace}/{resource.name}/{scaled.name}")
    allowed = ", ".join(sorted(resource.kind for resource in found.scalable)) or "none"
    if not needs_scale:
        raise ActuationError(f"the API server has no kind {scaled.kind} of {scaled.api_version}")
    raise ActuationError(
        f"{scaled.kind} of {scaled.api_version} has no scale subresource; allowed there: {allowed}; or name the field "
        "with the count: replicas_field"
    )
