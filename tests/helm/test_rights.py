"""Tests the controller's rights on Kubernetes: none, or those to scale RayClusters in the configured namespaces."""

import json

import pytest

from api.server import Settings
from tests.helm.chart import NAMESPACE, Object, container, environment, one, render
from tests.testbed.helm import Helm

ON = ["--set", "controller.kubernetes.enabled=true"]
TWO = [*ON, "--set", "controller.kubernetes.namespaces={ml,research}"]


def namespaces(objects: list[Object], kind: str) -> list[str]:
    return [item["metadata"]["namespace"] for item in objects if item["kind"] == kind]


@pytest.mark.parametrize(("values", "expected"), [(ON, [NAMESPACE]), (TWO, ["ml", "research"])])
def test_the_controller_has_roles_in_the_listed_namespaces(helm3: Helm, values: list[str], expected: list[str]) -> None:
    objects = render(helm3, *values)
    assert namespaces(objects, "Role") == namespaces(objects, "RoleBinding") == expected
    account = one(objects, "ServiceAccount", "-controller")["metadata"]
    for binding in (item for item in objects if item["kind"] == "RoleBinding"):
        assert binding["subjects"] == [
            {"kind": "ServiceAccount", "name": account["name"], "namespace": account["namespace"]}
        ]
        assert binding["roleRef"]["name"] == one(render(helm3, *ON), "Role")["metadata"]["name"]


def test_the_role_has_the_permissions_that_worker_groups_need(helm3: Helm) -> None:
    assert one(render(helm3, *ON), "Role")["rules"] == [
        {"apiGroups": ["ray.io"], "resources": ["rayclusters"], "verbs": ["get", "patch"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
    ]


SCALE = {"apps": ["deployments", "statefulsets"], "leaderworkerset.x-k8s.io": ["leaderworkersets"]}


def test_the_role_has_the_permissions_to_scale_the_listed_resources(helm3: Helm) -> None:
    scale = ["--set-json", f"controller.kubernetes.scale={json.dumps(SCALE)}"]
    before = one(render(helm3, *ON), "Role")["rules"]
    assert one(render(helm3, *ON, *scale), "Role")["rules"] == [
        *before,
        {"apiGroups": ["apps"], "resources": ["deployments", "statefulsets"], "verbs": ["get"]},
        {"apiGroups": ["apps"], "resources": ["deployments/scale", "statefulsets/scale"], "verbs": ["get", "patch"]},
        {"apiGroups": ["leaderworkerset.x-k8s.io"], "resources": ["leaderworkersets"], "verbs": ["get"]},
        {
            "apiGroups": ["leaderworkerset.x-k8s.io"],
            "resources": ["leaderworkersets/scale"],
            "verbs": ["get", "patch"],
        },
        {"apiGroups": ["autoscaling"], "resources": ["horizontalpodautoscalers"], "verbs": ["list"]},
        {"apiGroups": ["keda.sh"], "resources": ["scaledobjects"], "verbs": ["list"]},
        {"apiGroups": ["autoscaling.aibrix.ai"], "resources": ["podautoscalers"], "verbs": ["list"]},
    ]


def test_only_a_controller_that_drains_may_patch_pods(helm3: Helm) -> None:
    rules = one(render(helm3, *ON, "--set", "controller.kubernetes.drain=true"), "Role")["rules"]
    assert {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "patch"]} in rules


def test_releases_of_the_same_name_do_not_share_a_role(helm3: Helm) -> None:
    roles = {
        one(render(helm3, *TWO[:2], "--set", "controller.kubernetes.namespaces={ml}", "--namespace", where), "Role")[
            "metadata"
        ]["name"]
        for where in ("fleet", "other")
    }
    assert len(roles) == 2


def test_the_controller_has_the_kubernetes_option_and_only_its_pods_have_a_token(helm3: Helm) -> None:
    objects = render(helm3, *ON)
    assert "--kubernetes" in container(one(objects, "Deployment", "-controller"))["args"]
    mounted = {
        item["metadata"]["name"]: item["spec"]["template"]["spec"]["automountServiceAccountToken"]
        for item in objects
        if item["kind"] == "Deployment"
    }
    assert mounted == {"demo-fleetwright-api": False, "demo-fleetwright-controller": True}


def test_the_controller_may_reach_the_api_server(helm3: Helm) -> None:
    def ports(*values: str) -> set[int]:
        rules = one(render(helm3, *values), "NetworkPolicy", "-controller")["spec"]["egress"]
        return {port["port"] for rule in rules for port in rule["ports"]}

    assert ports(*ON) - ports() == {443, 6443}


REVIEWS = ["--set", "auth.kubernetes.enabled=true"]


def test_the_api_has_no_token_and_no_right_unless_it_reviews_tokens(helm3: Helm) -> None:
    assert not [item for item in render(helm3) if item["kind"].startswith("ClusterRole")]
    objects = render(helm3, *REVIEWS)
    assert one(objects, "ClusterRole")["rules"] == [
        {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]}
    ]
    account = one(objects, "ServiceAccount", "-api")["metadata"]
    (subject,) = one(objects, "ClusterRoleBinding")["subjects"]
    assert subject == {"kind": "ServiceAccount", "name": account["name"], "namespace": account["namespace"]}
    assert one(objects, "Deployment", "-api")["spec"]["template"]["spec"]["automountServiceAccountToken"]


def test_the_grants_of_accounts_are_settings_of_the_api(helm3: Helm) -> None:
    grants = {"system:serviceaccount:ml:planner": {"scopes": ["read", "plan"], "project": "ml"}}
    objects = render(helm3, *REVIEWS, "--set-json", f"auth.kubernetes.grants={json.dumps(grants)}")
    settings = environment(one(objects, "Deployment", "-api"))
    chosen = {name.removeprefix("FLEETWRIGHT_").lower(): text for name, text in settings.items()}
    found = Settings(
        kubernetes_tokens=chosen["kubernetes_tokens"] == "true",
        kubernetes_audience=chosen["kubernetes_audience"],
        kubernetes_grants=json.loads(chosen["kubernetes_grants"]),
    )
    assert found.kubernetes_grants["system:serviceaccount:ml:planner"].project == "ml"


def test_an_api_that_reviews_tokens_may_reach_the_api_server(helm3: Helm) -> None:
    def ports(*values: str) -> set[int]:
        rules = one(render(helm3, *values), "NetworkPolicy", "-api")["spec"]["egress"]
        return {port["port"] for rule in rules for port in rule["ports"]}

    assert ports(*REVIEWS) - ports() == {443, 6443}


CUSTOM = ["--set", "controller.customResources.enabled=true"]
CUSTOM_RULES = [
    {"apiGroups": ["fleetwright.io"], "resources": ["fleettargets", "planrequests"], "verbs": ["list"]},
    {"apiGroups": ["fleetwright.io"], "resources": ["fleettargets/status", "planrequests/status"], "verbs": ["patch"]},
    {"apiGroups": ["fleetwright.io"], "resources": ["fleettargets"], "verbs": ["patch"]},
]


@pytest.mark.parametrize(
    ("values", "kind", "namespace", "argument"),
    [
        ([], "Role", NAMESPACE, NAMESPACE),
        (["--set", "controller.customResources.namespace=ml"], "Role", "ml", "ml"),
        (["--set", "controller.customResources.namespace=*"], "ClusterRole", None, "*"),
    ],
)
def test_the_controller_of_custom_resources_has_the_rights_in_their_namespaces(
    helm3: Helm, values: list[str], kind: str, namespace: str | None, argument: str
) -> None:
    objects = render(helm3, *CUSTOM, *values)
    role, binding = one(objects, kind), one(objects, f"{kind}Binding")
    assert role["rules"] == CUSTOM_RULES
    assert role["metadata"].get("namespace") == binding["metadata"].get("namespace") == namespace
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    controller = one(objects, "Deployment", "-controller")
    arguments = container(controller)["args"]
    assert arguments[arguments.index("--custom-resources") + 1] == argument
    assert controller["spec"]["template"]["spec"]["automountServiceAccountToken"]


def test_the_rights_to_targets_and_to_custom_resources_have_different_names(helm3: Helm) -> None:
    roles = [item["metadata"]["name"] for item in render(helm3, *ON, *CUSTOM) if item["kind"] == "Role"]
    assert len(set(roles)) == 2
