"""Objects without a `scale` subresource: the field with their count, and the labels of their pods.  Pure.

KServe's kinds are known.  Of another kind, the target names the field and the labels.  A field `minReplicas` pins the
count together with the `maxReplicas` beside it: an autoscaler between both has nothing left to choose.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from api.schemas.applications import ScaledObject
from deploy.actuators.base import Step
from deploy.actuators.kubernetes_scale.discovery import group_of
from deploy.common.errors import ActuationError

DEFAULT_REPLICAS: Final = 1  # of an absent field, in every kind with such a field
KSERVE: Final = "serving.kserve.io"


@dataclass(frozen=True, slots=True, kw_only=True)
class CountField:
    pointer: str  # JSON pointer
    pod_labels: Mapping[str, str]

    @property
    def pointers(self) -> tuple[str, ...]:
        """Return every field that is set to the count."""
        stem, _, last = self.pointer.rpartition("/")
        return (self.pointer, f"{stem}/maxReplicas") if last == "minReplicas" else (self.pointer,)

    @property
    def selector(self) -> str:
        return ",".join(f"{name}={value}" for name, value in sorted(self.pod_labels.items()))

    @property
    def managed_fields(self) -> tuple[str, ...]:
        """Return the path of the field in `managedFields`."""
        return tuple(f"f:{name}" for name in self.pointer.split("/")[1:])

    def replicas(self, document: Any) -> int:
        value = _value(document, self.pointer)
        return DEFAULT_REPLICAS if value is None else int(value)

    def patch(self, document: Any, step: Step) -> Iterator[dict[str, Any]]:
        """Yield operations that set the count, and fail if the object changed since it was read."""
        yield {
            "op": "test",
            "path": "/metadata/resourceVersion",
            "value": _value(document, "/metadata/resourceVersion"),
        }
        for pointer in self.pointers:
            if (value := _value(document, pointer)) is not None:
                yield {"op": "test", "path": pointer, "value": value}
            elif _value(document, pointer.rpartition("/")[0]) is None:
                raise ActuationError(f"the object has no {pointer.rpartition('/')[0]}, where its count would be")
            yield {"op": "add", "path": pointer, "value": step.replicas_after}


def count_field(scaled: ScaledObject) -> CountField | None:
    """Return the field of an object that has no `scale`; None for an object that has one."""
    pointer, labels = scaled.replicas_field, scaled.pod_labels
    known = _known(scaled)
    if known is not None and pointer is None:
        return known if labels is None else CountField(pointer=known.pointer, pod_labels=labels)
    return None if pointer is None else CountField(pointer=pointer, pod_labels=labels or {})


def _known(scaled: ScaledObject) -> CountField | None:
    match group_of(scaled.api_version), scaled.kind:
        case (group, "InferenceService") if group == KSERVE:
            labels = {"serving.kserve.io/inferenceservice": scaled.name, "component": "predictor"}
            return CountField(pointer="/spec/predictor/minReplicas", pod_labels=labels)
        case (group, "LLMInferenceService") if group == KSERVE:
            component = {"app.kubernetes.io/component": "llminferenceservice-workload"}
            return CountField(pointer="/spec/replicas", pod_labels={"app.kubernetes.io/name": scaled.name} | component)
    return None


def _value(document: Any, pointer: str) -> Any:
    found = document
    for name in pointer.split("/")[1:]:
        if not isinstance(found, Mapping) or name not in found:
            return None
        found = found[name]
    return found
