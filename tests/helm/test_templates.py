"""Tests properties of every rendering of the chart, whatever the values."""

import re
from pathlib import Path

import kubernetes_validate
import pytest

from tests.helm.chart import CHART, NAMESPACE, POSTGRES, PROFILES, Object, given, kinds, pod_templates, render
from tests.testbed.helm import Helm, HelmError

KUBERNETES_VERSIONS = ["1.29", "1.33", "1.37"]  # the oldest allowed, the middle, the newest whose schemas are published
PROMETHEUS_OPERATOR = "monitoring.coreos.com/v1"  # kinds of custom resources
# An existing Secret, because the chart generates a new token at every rendering.
FIXED = ["--set", "auth.bootstrapToken.existingSecret=tokens"]

profiles = pytest.mark.parametrize("profile", [None, *PROFILES], ids=lambda path: path.stem if path else "defaults")


@profiles
def test_the_chart_lints_without_a_warning(helm: Helm, profile: Path | None) -> None:
    assert "0 chart(s) failed" in helm.run("lint", "--strict", CHART, *given(profile))


@profiles
@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
def test_every_object_is_valid_for_kubernetes(helm3: Helm, profile: Path | None, version: str) -> None:
    objects = render(helm3, "--kube-version", f"{version}.0", profile=profile)
    built_in = [item for item in objects if item["apiVersion"] != PROMETHEUS_OPERATOR]
    assert {"Deployment", "Service", "NetworkPolicy"} <= kinds(built_in)
    for item in built_in:
        assert kubernetes_validate.validate(item, version, strict=True) == version


def test_validation_reports_a_misspelt_field(helm3: Helm) -> None:
    service = next(item for item in render(helm3) if item["kind"] == "Service")
    service["spec"]["prots"] = service["spec"].pop("ports")
    with pytest.raises(kubernetes_validate.ValidationError, match="prots"):
        kubernetes_validate.validate(service, KUBERNETES_VERSIONS[0], strict=True)


@profiles
def test_helm_3_and_helm_4_render_the_same_objects(helm3: Helm, helm4: Helm, profile: Path | None) -> None:
    assert render(helm3, *FIXED, profile=profile) == render(helm4, *FIXED, profile=profile)


def test_the_chart_requires_kubernetes_1_29(helm: Helm) -> None:
    with pytest.raises(HelmError, match=r"requires kubeVersion: >=1\.29\.0-0"):
        render(helm, "--kube-version", "1.28.15")


def test_a_vendor_build_of_kubernetes_1_29_is_accepted(helm: Helm) -> None:
    assert render(helm, "--kube-version", "v1.29.0-eks-1234567")


@profiles
def test_every_pod_meets_the_restricted_standard(helm3: Helm, profile: Path | None) -> None:
    for name, template in pod_templates(render(helm3, profile=profile)):
        spec = template["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys(), name
        assert {kind for volume in spec.get("volumes", []) for kind in volume} <= {
            "name", "emptyDir", "persistentVolumeClaim", "secret",
        }, name  # fmt: skip
        for one_container in spec["containers"]:
            context = one_container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False, name
            assert context["readOnlyRootFilesystem"] is True, name
            assert context["capabilities"] == {"drop": ["ALL"]}, name


@profiles
def test_no_pod_has_access_to_the_kubernetes_api(helm3: Helm, profile: Path | None) -> None:
    objects = render(helm3, profile=profile)
    assert all(template["spec"]["automountServiceAccountToken"] is False for _, template in pod_templates(objects))
    assert all(item["automountServiceAccountToken"] is False for item in objects if item["kind"] == "ServiceAccount")
    assert not {"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"} & kinds(objects)


@profiles
def test_no_pod_receives_service_link_variables(helm3: Helm, profile: Path | None) -> None:
    """Kubernetes would set FLEETWRIGHT_PORT=tcp://… in every pod beside a Service named fleetwright."""
    for name, template in pod_templates(render(helm3, profile=profile)):
        assert template["spec"]["enableServiceLinks"] is False, name


@profiles
def test_every_container_has_resource_requests_and_a_memory_limit(helm3: Helm, profile: Path | None) -> None:
    for name, template in pod_templates(render(helm3, profile=profile)):
        for one_container in template["spec"]["containers"]:
            assert {"cpu", "memory"} <= one_container["resources"]["requests"].keys(), name
            assert "memory" in one_container["resources"]["limits"], name


def test_every_object_is_in_the_namespace_of_the_release_and_labelled(helm3: Helm) -> None:
    for item in _everything(helm3, "--set", "commonLabels.team=platform"):
        assert item["metadata"]["namespace"] == NAMESPACE
        assert item["metadata"]["labels"]["app.kubernetes.io/instance"] == "demo"
        assert item["metadata"]["labels"]["team"] == "platform"


def test_every_pod_is_labelled_without_a_version(helm3: Helm) -> None:
    """A pod label that names the chart's version would restart every pod at every new version of the chart."""
    for name, template in pod_templates(_everything(helm3, "--set", "commonLabels.team=platform")):
        labels = template["metadata"]["labels"]
        assert labels["team"] == "platform", name
        assert not {"app.kubernetes.io/version", "helm.sh/chart"} & labels.keys(), name


def test_each_selector_matches_only_its_own_pods(helm3: Helm) -> None:
    objects = _everything(helm3)
    pods = [template["metadata"]["labels"] for _, template in pod_templates(objects)]
    for item in objects:
        if (selector := _selector(item)) is not None:
            assert sum(selector.items() <= labels.items() for labels in pods) == 1, item["metadata"]["name"]


def test_names_are_valid_and_within_63_characters(helm3: Helm) -> None:
    longest = "r" * 53  # the limit of Helm
    for item in _everything(helm3, release=longest):
        name = item["metadata"]["name"]
        assert len(name) <= 63
        assert re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", name)


@pytest.mark.parametrize(
    ("release", "values", "expected"),
    [
        ("demo", [], "demo-fleetwright-api"),
        ("fleetwright", [], "fleetwright-api"),
        ("demo", ["--set", "nameOverride=fw"], "demo-fw-api"),
        ("demo", ["--set", "fullnameOverride=planner"], "planner-api"),
    ],
)
def test_names_are_derived_from_the_release(helm3: Helm, release: str, values: list[str], expected: str) -> None:
    services = [item for item in render(helm3, *values, release=release) if item["kind"] == "Service"]
    assert [item["metadata"]["name"] for item in services] == [expected]


DIGEST = f"sha256:{'a' * 64}"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["image.tag=1.2.3"], {"fleetwright:1.2.3-api"}),
        (["image.registry=registry.invalid:5000/team"], {"registry.invalid:5000/team/fleetwright:0.2.0-api"}),
        (["image.suffixes.api="], {"fleetwright:0.2.0"}),
        (["image.tag=1.2.3", f"image.digests.api={DIGEST}"], {f"fleetwright@{DIGEST}"}),
    ],
)
def test_all_containers_of_a_target_run_the_same_image(helm3: Helm, values: list[str], expected: set[str]) -> None:
    objects = _everything(helm3, *(argument for value in values for argument in ("--set", value)))
    images = {each["image"] for _, template in pod_templates(objects) for each in template["spec"]["containers"]}
    assert images == expected


def _everything(helm: Helm, *arguments: str, release: str = "demo") -> list[Object]:
    """Render every object of the chart except the PersistentVolumeClaim."""
    objects = render(
        helm, *arguments, "--set", "auth.bootstrapToken.existingSecret=", profile=POSTGRES, release=release
    )
    assert {"Secret", "Job", "HorizontalPodAutoscaler", "PodMonitor", "PrometheusRule", "ConfigMap"} <= kinds(objects)
    return objects


def _selector(item: Object) -> dict[str, str] | None:
    spec = item.get("spec", {})
    found = spec.get("podSelector") or spec.get("selector")
    if not isinstance(found, dict):
        return None
    labels: dict[str, str] = found.get("matchLabels", found)
    return labels
