"""Counts of objects without a scale subresource: known kinds, named fields, and patches that test what they replace."""

from typing import Any

import pytest
from pydantic import ValidationError

from api.schemas.applications import KubernetesScale, ScaledObject
from deploy.actuators.base import Step
from deploy.actuators.kubernetes_scale.count_field import CountField, count_field
from deploy.common.errors import ActuationError
from tests.deploy.actuators.kube_double import operate

UP = Step(part="H100", replicas_before=1, replicas_after=4)
V1 = {"api_version": "serving.kserve.io/v1beta1", "kind": "InferenceService", "name": "chat"}
LLM = {"api_version": "serving.kserve.io/v1alpha2", "kind": "LLMInferenceService", "name": "chat"}
PREFILL = LLM | {
    "replicas_field": "/spec/prefill/replicas",
    "pod_labels": {
        "app.kubernetes.io/name": "chat",
        "app.kubernetes.io/component": "llminferenceservice-workload-prefill",
    },
}


def of(described: dict[str, Any]) -> CountField:
    found = count_field(ScaledObject.model_validate(described))
    assert found is not None
    return found


def test_kinds_of_kserve_are_known_and_others_have_a_scale_unless_a_field_is_named() -> None:
    assert of(V1).pointers == ("/spec/predictor/minReplicas", "/spec/predictor/maxReplicas")
    assert of(LLM).pointers == ("/spec/replicas",)
    assert of(LLM).selector == ("app.kubernetes.io/component=llminferenceservice-workload,app.kubernetes.io/name=chat")
    assert of(PREFILL).pointers == ("/spec/prefill/replicas",)
    assert of(PREFILL).managed_fields == ("f:spec", "f:prefill", "f:replicas")
    assert count_field(ScaledObject(name="chat")) is None


@pytest.mark.parametrize(
    ("described", "spec", "before", "after"),
    [
        (V1, {"predictor": {}}, 1, {"predictor": {"minReplicas": 4, "maxReplicas": 4}}),
        (
            V1,
            {"predictor": {"minReplicas": 1, "maxReplicas": 2}},
            1,
            {"predictor": {"minReplicas": 4, "maxReplicas": 4}},
        ),
        (LLM, {"replicas": 1}, 1, {"replicas": 4}),
        (LLM, {}, 1, {"replicas": 4}),
        (PREFILL, {"replicas": 7, "prefill": {"replicas": 2}}, 2, {"replicas": 7, "prefill": {"replicas": 4}}),
    ],
)
def test_a_patch_sets_the_count_and_nothing_else(
    described: dict[str, Any], spec: dict[str, Any], before: int, after: dict[str, Any]
) -> None:
    document = {"metadata": {"resourceVersion": "7"}, "spec": spec}
    assert of(described).replicas(document) == before
    patch = list(of(described).patch(document, UP))
    for operation in patch:
        operate(document, operation)
    assert document["spec"] == after
    assert patch[0] == {"op": "test", "path": "/metadata/resourceVersion", "value": "7"}


def test_a_field_without_its_parent_is_refused_by_name() -> None:
    document = {"metadata": {"resourceVersion": "7"}, "spec": {}}
    with pytest.raises(ActuationError, match="has no /spec/prefill, where its count would be"):
        list(of(PREFILL).patch(document, UP))


def test_two_parts_may_be_two_fields_of_one_object_but_not_the_same_one() -> None:
    objects = {"H100/decode": LLM, "H100/prefill": PREFILL}
    KubernetesScale.model_validate({"namespace": "ml", "objects": objects})
    with pytest.raises(ValidationError, match="name the same object"):
        KubernetesScale.model_validate({"namespace": "ml", "objects": objects | {"L4": PREFILL}})


def test_a_field_needs_the_labels_of_its_pods() -> None:
    with pytest.raises(ValidationError, match="is required with replicas_field"):
        ScaledObject.model_validate(PREFILL | {"pod_labels": None})
    with pytest.raises(ValidationError, match="replicas_field"):
        ScaledObject.model_validate(PREFILL | {"replicas_field": "/metadata/name"})
