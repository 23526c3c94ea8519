"""Who else scales an object: autoscalers that target it, an operator that owns it, managers that apply its count.

Two writers of one count undo each other, so the actuator writes only where it finds none of these.
"""

from collections.abc import Iterator
from http import HTTPStatus
from typing import Final, NamedTuple

from api.schemas.applications import ScaledObject
from deploy.actuators.kubernetes_scale.discovery import group_of
from deploy.common.kubernetes_client import FIELD_MANAGER, Kubernetes, RefusedError
from deploy.common.kubernetes_objects import Metadata, ObjectPart, parsed

# Where a custom resource keeps its count elsewhere, only autoscalers and its operator are found.
REPLICAS_FIELD: Final = ("f:spec", "f:replicas")


# Kinds that an operator owns and creates for others to scale: it reads their count.
SCALING_ADAPTERS: Final = frozenset(
    {
        ("nvidia.com", "DynamoGraphDeploymentScalingAdapter"),
        ("disaggregatedset.x-k8s.io", "DisaggregatedSetRoleScaler"),
    }
)


class _AutoscalerKind(NamedTuple):
    kind: str
    api_version: str
    resource: str
    default_kind: str  # of a reference that names none


_KINDS: Final = (
    _AutoscalerKind("HorizontalPodAutoscaler", "autoscaling/v2", "horizontalpodautoscalers", ""),
    _AutoscalerKind("ScaledObject", "keda.sh/v1alpha1", "scaledobjects", "Deployment"),
    _AutoscalerKind("PodAutoscaler", "autoscaling.aibrix.ai/v1alpha1", "podautoscalers", "Deployment"),
)


class _TargetRef(ObjectPart):
    api_version: str = ""
    kind: str = ""
    name: str = ""


class _AutoscalerSpec(ObjectPart):
    scale_target_ref: _TargetRef = _TargetRef()


class _Autoscaler(ObjectPart):
    metadata: Metadata
    spec: _AutoscalerSpec = _AutoscalerSpec()


class _Autoscalers(ObjectPart):
    items: tuple[_Autoscaler, ...] = ()


class Autoscaler(NamedTuple):
    """An autoscaler with the object that it scales."""

    name: str  # kind and name
    api_group: str | None  # None: the reference gives none
    target_kind: str
    target_name: str

    def scales(self, scaled: ScaledObject) -> bool:
        same_group = self.api_group is None or self.api_group == group_of(scaled.api_version)
        return same_group and (self.target_kind, self.target_name) == (scaled.kind, scaled.name)


class Autoscalers(NamedTuple):
    """The autoscalers of a namespace, and the kinds that could not be listed."""

    found: tuple[Autoscaler, ...]
    unread: tuple[RefusedError, ...]


async def list_autoscalers(kube: Kubernetes, *, namespace: str) -> Autoscalers:
    """List the autoscalers of every kind that the API server has."""
    found: list[Autoscaler] = []
    unread: list[RefusedError] = []
    for kind in _KINDS:
        path = f"/apis/{kind.api_version}/namespaces/{namespace}/{kind.resource}"
        try:
            listed = parsed(_Autoscalers, await kube.get(path))
        except RefusedError as error:
            if error.status != HTTPStatus.NOT_FOUND:  # the API server does not have this kind
                unread.append(error)
            continue
        for item in listed.items:
            target = item.spec.scale_target_ref
            group = group_of(target.api_version) if target.api_version else None
            name = f"{kind.kind} {item.metadata.name}"
            found.append(Autoscaler(name, group, target.kind or kind.default_kind, target.name))
    return Autoscalers(tuple(found), tuple(unread))


def owners_of(
    scaled: ScaledObject,
    metadata: Metadata,
    autoscalers: Autoscalers,
    *,
    count_field: tuple[str, ...] = REPLICAS_FIELD,
) -> Iterator[str]:
    """Yield every other owner of the object's count, as a report names it."""
    yield from (autoscaler.name for autoscaler in autoscalers.found if autoscaler.scales(scaled))
    is_adapter = (group_of(scaled.api_version), scaled.kind) in SCALING_ADAPTERS
    if (operator := metadata.controller) is not None and not is_adapter:
        yield f"{operator.kind} {operator.name}, which owns the object"
    for manager in metadata.appliers(*count_field, ours=FIELD_MANAGER):
        yield f"field manager {manager}, which applies {'.'.join(name.removeprefix('f:') for name in count_field)}"
