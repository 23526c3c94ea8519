"""FleetTarget and PlanRequest on a real API server: refusals, conditions, ownership, columns and deletion."""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from api.client import NotFoundError
from api.schemas.targets import Mode, Phase, TargetSpec, TargetStatus
from deploy.common.clock import Clock
from deploy.common.kubernetes_client import KubernetesAccess, kubernetes_server
from deploy.common.leader_election import Leadership, LeaseSettings
from deploy.custom_resources.objects import ADOPT, FINALIZER, GROUP
from deploy.custom_resources.reconciler import CustomResources
from tests.deploy.controller.harness import Harness, harness_of, request_for
from tests.testbed.kube_api import KubeApi
from tests.testbed.service import RunningService

pytestmark = [pytest.mark.kubernetes, pytest.mark.anyio]

CRDS = Path(__file__).parents[2] / "helm" / "crds"
H100 = "H100-SXM"
APPLICATION = {
    "kind": "ray_serve",
    "dashboard_url": "http://chat-head-svc:8265",
    "application": "chat",
    "deployments": {H100: "on-h100"},
}
TARGET: dict[str, Any] = {"workload": "chat", "application": APPLICATION}
WORKLOAD: dict[str, Any] = {"name": "a", "rate_rps": 1, "buckets": "chat"}
OPTION = {"name": "o", "gpu": H100, "price_usd_per_h": 1, "max_rps": [[1]]}
EXPERT_MAP = {
    "placement_id": "0193a5b0-0000-7000-8000-000000000000",
    "engine": "vllm",
    "replicas_url": "http://chat/fleetwright/expert-maps",
}
RIGHTS = [
    {"apiGroups": [GROUP], "resources": ["fleettargets", "planrequests"], "verbs": ["list"]},
    {"apiGroups": [GROUP], "resources": ["fleettargets/status", "planrequests/status"], "verbs": ["patch"]},
    {"apiGroups": [GROUP], "resources": ["fleettargets"], "verbs": ["patch"]},
]


@pytest.fixture(scope="module", autouse=True)
def definitions(kube_api: KubeApi, kube_client: client.ApiClient) -> Iterator[None]:
    kube_api.install_crds(CRDS)
    yield
    for plural in ("fleettargets", "planrequests"):
        client.ApiextensionsV1Api(kube_client).delete_custom_resource_definition(f"{plural}.{GROUP}")


@pytest.fixture
async def harness(sqlite_service: RunningService) -> AsyncIterator[Harness]:
    async with harness_of(sqlite_service) as harness:
        yield harness


class Objects:
    """The custom resources of one namespace, as an administrator handles them."""

    def __init__(self, kube_client: client.ApiClient, namespace: str) -> None:
        self._client, self.namespace = kube_client, namespace
        self._custom = client.CustomObjectsApi(kube_client)

    def apply(self, kind: str, name: str, spec: dict[str, Any], **metadata: Any) -> None:
        """Create an object, or replace its specification."""
        plural, body = (
            _plural(kind),
            {
                "apiVersion": f"{GROUP}/v1alpha1",
                "kind": kind,
                "metadata": {"name": name} | metadata,
                "spec": spec,
            },
        )
        try:
            self._custom.create_namespaced_custom_object(GROUP, "v1alpha1", self.namespace, plural, body)
        except client.ApiException as error:
            if error.status != 409:
                raise
            found = self.get(kind, name)
            found["metadata"] |= metadata
            self._custom.replace_namespaced_custom_object(
                GROUP, "v1alpha1", self.namespace, plural, name, found | {"spec": spec}
            )

    def get(self, kind: str, name: str) -> dict[str, Any]:
        found = self._custom.get_namespaced_custom_object(GROUP, "v1alpha1", self.namespace, _plural(kind), name)
        return dict(found)

    def delete(self, kind: str, name: str) -> None:
        self._custom.delete_namespaced_custom_object(GROUP, "v1alpha1", self.namespace, _plural(kind), name)

    def conditions(self, kind: str, name: str) -> dict[str, tuple[str, str]]:
        """Return status and reason by type; every condition is of the current generation."""
        found = self.get(kind, name)
        generation = found["metadata"]["generation"]
        assert {each["observedGeneration"] for each in found["status"]["conditions"]} == {generation}
        return {each["type"]: (each["status"], each["reason"]) for each in found["status"]["conditions"]}

    def message(self, kind: str, name: str, condition: str) -> str:
        (found,) = (each for each in self.get(kind, name)["status"]["conditions"] if each["type"] == condition)
        return str(found["message"])

    def table(self, kind: str) -> list[dict[str, Any]]:
        """Return what `kubectl get` prints, by column."""
        path = f"/apis/{GROUP}/v1alpha1/namespaces/{self.namespace}/{_plural(kind)}"
        accept = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
        request = self._client.param_serialize("GET", path, header_params=accept, auth_settings=["BearerToken"])
        response = self._client.call_api(*request)
        table = json.loads(response.read())
        names = [column["name"] for column in table["columnDefinitions"]]
        return [dict(zip(names, row["cells"], strict=True)) for row in table["rows"]]


@pytest.fixture
def objects(kube_client: client.ApiClient, kube_namespace: str) -> Objects:
    return Objects(kube_client, kube_namespace)


@pytest.fixture
async def resources(harness: Harness, kube_api: KubeApi, kube_namespace: str) -> AsyncIterator[CustomResources]:
    """Yield the reconciler of one namespace, which leads, with the rights of the documentation and no more."""
    rbac = "rbac.authorization.k8s.io"
    named = {"name": "controller", "namespace": kube_namespace}
    kube_api.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": named})
    kube_api.apply({"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": named, "rules": RIGHTS})
    role = {"apiGroup": rbac, "kind": "Role", "name": "controller"}
    subjects = [{"kind": "ServiceAccount", **named}]
    kube_api.apply(
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": named,
            "roleRef": role,
            "subjects": subjects,
        }
    )
    access = KubernetesAccess(
        kubeconfig=kube_api.service_account_kubeconfig(namespace=kube_namespace, name="controller")
    )
    clock = Clock(now=harness.clock.now, steady_s=harness.clock.monotonic_s)
    leadership = Leadership(api=harness.api, settings=LeaseSettings(holder="test"), clock=clock)
    await leadership.renew()
    async with kubernetes_server(access) as server:
        yield CustomResources(
            api=harness.api, kubernetes=server, leadership=leadership, clock=clock, namespace=kube_namespace
        )


@pytest.mark.parametrize(
    ("kind", "spec", "message"),
    [
        ("FleetTarget", {"target": TARGET | {"mode": "act"}}, 'supported values: "observe", "recommend", "apply"'),
        ("FleetTarget", {"target": TARGET | {"max_step": 0}}, "spec.target.max_step in body should be greater than"),
        ("FleetTarget", {"target": {"application": APPLICATION}}, "spec.target.workload: Required value"),
        (
            "FleetTarget",
            {
                "target": {
                    "workload": "chat",
                    "application": {"kind": "ray_train"},
                    "expert_maps": {H100: EXPERT_MAP},
                }
            },
            "expert_maps needs an application of kind ray_serve",
        ),
        ("PlanRequest", {"request": {"workloads": [WORKLOAD]}}, "each workload needs an slo, or options"),
        (
            "PlanRequest",
            {"request": {"workloads": [WORKLOAD | {"options": [OPTION]}, WORKLOAD | {"options": [OPTION]}]}},
            "the names of workloads must be unique",
        ),
    ],
)
async def test_the_server_refuses_with_the_rule(
    objects: Objects, kind: str, spec: dict[str, Any], message: str
) -> None:
    with pytest.raises(client.ApiException) as refused:
        objects.apply(kind, "wrong", spec)
    assert refused.value.status == 422
    assert message in json.loads(refused.value.body)["message"]


async def test_the_name_in_the_api_cannot_change(objects: Objects) -> None:
    objects.apply("FleetTarget", "chat", {"name": "llm", "target": TARGET})
    with pytest.raises(client.ApiException, match="name is immutable: delete this object and create another"):
        objects.apply("FleetTarget", "chat", {"name": "other", "target": TARGET})


async def test_a_feasible_target_is_created_and_its_status_comes_back(
    harness: Harness, objects: Objects, resources: CustomResources
) -> None:
    plan_id = await harness.plan({H100: 2})
    objects.apply("FleetTarget", "chat", {"target": TARGET | {"plan_id": plan_id, "mode": "apply"}})

    assert await resources.reconcile()

    stored = (await harness.api.get_target("chat")).document
    assert (stored.spec.plan_id, stored.spec.mode) == (plan_id, Mode.APPLY)
    assert objects.conditions("FleetTarget", "chat") == {
        "Ready": ("True", "Synced"),
        "Feasible": ("True", "PlanHasMix"),
        "Applied": ("Unknown", "NotReported"),
        "SLOMet": ("Unknown", "NotChecked"),
        "PowerWithinBudget": ("Unknown", "NoLimit"),
        "Frozen": ("False", "NotFrozen"),
    }

    report = TargetStatus(phase=Phase.APPLIED, observed_at=harness.clock.now(), plan_id=plan_id, applied={H100: 2})
    await harness.api.report_target_status("chat", report)
    assert await resources.reconcile()
    assert objects.conditions("FleetTarget", "chat")["Applied"] == ("True", "Applied")

    before = objects.get("FleetTarget", "chat")["metadata"]["resourceVersion"]
    assert await resources.reconcile()
    assert objects.get("FleetTarget", "chat")["metadata"]["resourceVersion"] == before, "an idle reconcile writes"
    (row,) = objects.table("FleetTarget")
    shown = {name: row[name] for name in ("Name", "Mode", "Plan", "Phase", "Ready", "Feasible", "Applied")}
    assert shown == {
        "Name": "chat",
        "Mode": "apply",
        "Plan": plan_id,
        "Phase": "applied",
        "Ready": "True",
        "Feasible": "True",
        "Applied": "True",
    }


async def test_an_infeasible_plan_and_a_freeze_are_conditions(
    harness: Harness, objects: Objects, resources: CustomResources
) -> None:
    plan_id = await harness.plan({H100: 2}, missing=10)
    objects.apply("FleetTarget", "chat", {"target": TARGET | {"plan_id": plan_id}})
    await harness.freeze(frozen=True, reason="maintenance")

    assert await resources.reconcile()

    found = objects.conditions("FleetTarget", "chat")
    assert found["Feasible"] == ("False", "Infeasible")
    assert found["Frozen"] == ("True", "Frozen")
    assert objects.message("FleetTarget", "chat", "Frozen") == "maintenance"
    since = objects.get("FleetTarget", "chat")["status"]["conditions"][-1]["lastTransitionTime"]

    harness.clock.advance(60.0)
    await harness.freeze(frozen=False)
    await resources.leadership.renew()
    assert await resources.reconcile()
    assert objects.conditions("FleetTarget", "chat")["Frozen"] == ("False", "NotFrozen")
    assert objects.get("FleetTarget", "chat")["status"]["conditions"][-1]["lastTransitionTime"] > since


async def test_another_writer_is_reported_and_not_overwritten(
    harness: Harness, objects: Objects, resources: CustomResources
) -> None:
    objects.apply("FleetTarget", "chat", {"target": TARGET})
    assert await resources.reconcile()
    await harness.change("chat", min_replicas=7)
    objects.apply("FleetTarget", "chat", {"target": TARGET | {"min_replicas": 3}})

    assert await resources.reconcile()

    assert objects.conditions("FleetTarget", "chat")["Ready"] == ("False", "ChangedByAnotherWriter")
    assert f"{ADOPT}=2" in objects.message("FleetTarget", "chat", "Ready")
    assert (await harness.api.get_target("chat")).document.spec.min_replicas == 7

    objects.apply("FleetTarget", "chat", {"target": TARGET | {"min_replicas": 3}}, annotations={ADOPT: "2"})
    assert await resources.reconcile()
    assert objects.conditions("FleetTarget", "chat")["Ready"] == ("True", "Synced")
    assert (await harness.api.get_target("chat")).document.spec.min_replicas == 3


async def test_a_target_of_others_is_left_alone_and_a_plan_that_is_not_stated_stays(
    harness: Harness, objects: Objects, resources: CustomResources
) -> None:
    plan_id = await harness.plan({H100: 2})
    await harness.api.create_target("foreign", _spec(min_replicas=4, plan_id=plan_id))
    objects.apply("FleetTarget", "foreign", {"target": TARGET})
    objects.apply("FleetTarget", "chat", {"target": TARGET})
    assert await resources.reconcile()
    conditions = objects.conditions("FleetTarget", "foreign")
    assert (conditions["Ready"], conditions["Feasible"]) == (("False", "NotOwned"), ("Unknown", "NoPlan"))
    assert "planId" not in objects.get("FleetTarget", "foreign")["status"]
    assert (await harness.api.get_target("foreign")).document.spec.min_replicas == 4

    await harness.change("chat", plan_id=plan_id)
    objects.apply("FleetTarget", "chat", {"target": TARGET | {"min_replicas": 2}})
    assert await resources.reconcile()
    stored = (await harness.api.get_target("chat")).document.spec
    assert (stored.plan_id, stored.min_replicas) == (plan_id, 2)
    assert objects.conditions("FleetTarget", "chat")["Ready"] == ("True", "Synced")


async def test_what_the_api_refuses_is_a_condition(objects: Objects, resources: CustomResources) -> None:
    unclear = APPLICATION | {"deployments": {}}
    objects.apply("FleetTarget", "chat", {"target": TARGET | {"application": unclear}})
    objects.apply("FleetTarget", "llm", {"target": TARGET | {"plan_id": "no-such-plan"}})

    assert await resources.reconcile()

    assert objects.conditions("FleetTarget", "chat")["Ready"] == ("False", "InvalidSpec")
    assert "deployments" in objects.message("FleetTarget", "chat", "Ready")
    assert objects.conditions("FleetTarget", "llm")["Ready"] == ("False", "RefusedByApi")


@pytest.mark.parametrize(("policy", "remains"), [("Delete", False), ("Retain", True)])
async def test_a_deleted_object_deletes_its_target_only_by_policy(
    harness: Harness, objects: Objects, resources: CustomResources, policy: str, *, remains: bool
) -> None:
    objects.apply("FleetTarget", "chat", {"deletionPolicy": policy, "target": TARGET})
    assert await resources.reconcile()
    assert (FINALIZER in objects.get("FleetTarget", "chat")["metadata"].get("finalizers", [])) != remains
    assert await resources.reconcile()

    objects.delete("FleetTarget", "chat")
    assert await resources.reconcile()

    assert objects.table("FleetTarget") == []
    if remains:
        assert (await harness.api.get_target("chat")).document.name == "chat"
    else:
        with pytest.raises(NotFoundError):
            await harness.api.get_target("chat")


async def test_a_plan_request_is_planned_once_per_generation(
    harness: Harness, objects: Objects, resources: CustomResources
) -> None:
    def spec(missing: int) -> dict[str, Any]:
        request = request_for({H100: 2}, missing=missing)
        return {"request": request.model_dump(mode="json", exclude_unset=True)}

    async def settled() -> dict[str, tuple[str, str]]:
        for _ in range(200):
            assert await resources.reconcile()
            found = objects.conditions("PlanRequest", "chat")
            if found["Ready"][1] != "Planning":
                return found
        raise AssertionError("the plan was never stored")

    objects.apply("PlanRequest", "chat", spec(0))
    assert await settled() == {
        "Ready": ("True", "Planned"),
        "Feasible": ("True", "PlanHasMix"),
        "SLOMet": ("True", "PlannedWithinSlo"),
        "PowerWithinBudget": ("Unknown", "NoLimit"),
    }
    (row,) = objects.table("PlanRequest")
    (plan,) = [each async for each in harness.api.iter_plans()]
    assert (row["Plan"], row["$/h"], row["Phase"]) == (plan.id, "2.00", "succeeded")
    assert (plan.name, plan.labels["kubernetes-name"]) == ("chat", "chat")

    objects.apply("PlanRequest", "chat", spec(10))
    assert (await settled())["Feasible"] == ("False", "Infeasible")
    assert len([each async for each in harness.api.iter_plans()]) == 2


def _spec(**fields: Any) -> TargetSpec:
    return TargetSpec.model_validate(TARGET | fields)


def _plural(kind: str) -> str:
    return f"{kind.lower()}s"
