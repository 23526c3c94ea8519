"""Tests how each profile runs the API, the migration Job and the controller."""

import base64
import json

import pytest

from api.server.auth import TOKEN_FORM
from tests.helm.chart import POSTGRES, SQLITE, Object, container, environment, kinds, one, render
from tests.testbed.helm import Helm

IN_POSTGRES = ["--set", "database.type=postgresql", "--set", "database.postgresql.urlSecret.name=database"]


class TestApiOnSqlite:
    def test_one_replica_at_a_time_uses_the_database_file(self, helm3: Helm) -> None:
        api = one(render(helm3), "Deployment", "-api")
        assert api["spec"]["replicas"] == 1
        assert api["spec"]["strategy"] == {"type": "Recreate"}

    def test_the_database_file_is_on_the_mounted_volume(self, helm3: Helm) -> None:
        api = one(render(helm3), "Deployment", "-api")
        (mount,) = (mount for mount in container(api)["volumeMounts"] if mount["name"] == "data")
        url = environment(api)["FLEETWRIGHT_DATABASE_URL"]
        assert url.startswith(f"sqlite+aiosqlite:///{mount['mountPath']}/")

    def test_the_claim_outlives_the_release_unless_retain_is_false(self, helm3: Helm) -> None:
        keep = {"helm.sh/resource-policy": "keep"}
        assert one(render(helm3), "PersistentVolumeClaim")["metadata"]["annotations"] == keep
        objects = render(helm3, "--set", "database.sqlite.persistence.retain=false")
        assert "annotations" not in one(objects, "PersistentVolumeClaim")["metadata"]

    def test_an_existing_claim_is_used(self, helm3: Helm) -> None:
        objects = render(helm3, "--set", "database.sqlite.persistence.existingClaim=mine")
        assert "PersistentVolumeClaim" not in kinds(objects)
        assert _volume(one(objects, "Deployment", "-api"), "data")["persistentVolumeClaim"] == {"claimName": "mine"}

    def test_without_persistence_there_is_no_claim(self, helm3: Helm) -> None:
        objects = render(helm3, profile=SQLITE)
        assert "PersistentVolumeClaim" not in kinds(objects)
        assert _volume(one(objects, "Deployment", "-api"), "data")["emptyDir"] == {}

    def test_there_is_no_migration_job(self, helm3: Helm) -> None:
        assert "Job" not in kinds(item for item in render(helm3) if "annotations" not in item["metadata"])


class TestApiOnPostgres:
    def test_rolling_updates_keep_all_replicas_available(self, helm3: Helm) -> None:
        api = one(render(helm3, *IN_POSTGRES, "--set", "api.replicas=3"), "Deployment", "-api")
        assert api["spec"]["replicas"] == 3
        assert api["spec"]["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}

    def test_the_database_url_comes_only_from_the_secret(self, helm3: Helm) -> None:
        api = one(render(helm3, *IN_POSTGRES), "Deployment", "-api")
        reference = {"secretKeyRef": {"name": "database", "key": "url"}}
        assert environment(api)["FLEETWRIGHT_DATABASE_URL"] == reference

    def test_replicas_are_spread_over_zones_and_nodes(self, helm3: Helm) -> None:
        api = one(render(helm3, *IN_POSTGRES), "Deployment", "-api")
        keys = [each["topologyKey"] for each in api["spec"]["template"]["spec"]["topologySpreadConstraints"]]
        assert keys == ["topology.kubernetes.io/zone", "kubernetes.io/hostname"]

    def test_an_autoscaler_sets_the_replicas(self, helm3: Helm) -> None:
        objects = render(helm3, *IN_POSTGRES, "--set", "api.autoscaling.enabled=true")
        api, scaler = one(objects, "Deployment", "-api"), one(objects, "HorizontalPodAutoscaler")
        assert "replicas" not in api["spec"]
        assert scaler["spec"]["scaleTargetRef"]["name"] == api["metadata"]["name"]

    @pytest.mark.parametrize(
        ("values", "budgeted"),
        [
            ("api.replicas=1", False),
            ("api.replicas=2", True),
            ("api.replicas=2,api.podDisruptionBudget.enabled=false", False),
            ("api.autoscaling.enabled=true,api.autoscaling.minReplicas=1", False),
            ("api.autoscaling.enabled=true,api.autoscaling.minReplicas=2", True),
        ],
    )
    def test_a_disruption_budget_exists_only_with_several_replicas(
        self, helm3: Helm, values: str, *, budgeted: bool
    ) -> None:
        assert ("PodDisruptionBudget" in kinds(render(helm3, *IN_POSTGRES, "--set", values))) is budgeted


class TestApiPod:
    def test_liveness_and_readiness_have_separate_probes(self, helm3: Helm) -> None:
        api = container(one(render(helm3), "Deployment", "-api"))
        paths = {probe: api[f"{probe}Probe"]["httpGet"]["path"] for probe in ("startup", "liveness", "readiness")}
        assert paths == {"startup": "/livez", "liveness": "/livez", "readiness": "/readyz"}

    def test_shutdown_waits_for_load_balancers_to_remove_the_pod(self, helm3: Helm) -> None:
        api = one(render(helm3), "Deployment", "-api")
        assert container(api)["lifecycle"]["preStop"]["exec"]["command"] == ["sleep", "5"]
        assert api["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 40

    def test_the_api_runs_without_a_controller(self, helm3: Helm) -> None:
        assert "--no-controller" in container(one(render(helm3), "Deployment", "-api"))["args"]

    def test_extra_settings_are_passed_as_environment_variables(self, helm3: Helm) -> None:
        values = "api.extraEnv[0].name=FLEETWRIGHT_RATE_LIMIT_BURST,api.extraEnv[0].value=800"
        api = one(render(helm3, "--set-string", values), "Deployment", "-api")
        assert environment(api)["FLEETWRIGHT_RATE_LIMIT_BURST"] == "800"

    @pytest.mark.parametrize("component", ["api", "controller"])
    def test_scheduling_values_are_applied(self, helm3: Helm, component: str) -> None:
        scheduling = {
            "priorityClassName": "high",
            "nodeSelector": {"pool": "system"},
            "tolerations": [{"key": "dedicated", "operator": "Exists"}],
            "affinity": {"nodeAffinity": {}},
        }
        values = [f"{component}.{key}={json.dumps(value)}" for key, value in scheduling.items()]
        objects = render(helm3, *(argument for value in values for argument in ("--set-json", value)))
        spec = one(objects, "Deployment", f"-{component}")["spec"]["template"]["spec"]
        assert {key: spec[key] for key in scheduling} == scheduling


class TestBootstrapToken:
    def test_the_server_accepts_the_generated_token(self, helm: Helm) -> None:
        token = base64.b64decode(one(render(helm), "Secret")["data"]["token"]).decode()
        assert TOKEN_FORM.fullmatch(token)

    def test_each_release_gets_its_own_token(self, helm3: Helm) -> None:
        assert one(render(helm3), "Secret")["data"] != one(render(helm3), "Secret")["data"]

    def test_the_token_is_a_file_readable_only_by_the_group_of_the_pod(self, helm3: Helm) -> None:
        api = one(render(helm3), "Deployment", "-api")
        secret = _volume(api, "token")["secret"]
        assert secret["defaultMode"] == 0o440
        assert _token_path(api) == environment(api)["FLEETWRIGHT_BOOTSTRAP_TOKEN_FILE"]

    def test_pods_restart_when_the_token_changes(self, helm3: Helm) -> None:
        one_way, other_way = render(helm3), render(helm3)
        for name in ("-api", "-controller"):
            assert _checksum(one_way, name) != _checksum(other_way, name)
            assert _checksum(one_way, name) == _checksum(one_way, "-api")

    def test_an_existing_token_is_used_and_none_is_generated(self, helm3: Helm) -> None:
        objects = render(helm3, profile=POSTGRES)
        assert "Secret" not in kinds(objects)
        secret = _volume(one(objects, "Deployment", "-api"), "token")["secret"]
        assert (secret["secretName"], secret["items"]) == ("fleetwright-tokens", [{"key": "admin", "path": "token"}])
        assert _checksum(objects, "-api") is None


class TestMigrationJob:
    def test_the_name_changes_with_the_job_spec(self, helm3: Helm) -> None:
        first = _job_name(helm3)
        assert _job_name(helm3) == first
        for change in ("image.tag=v2", "migrations.urlSecret.name=ddl", "migrations.backoffLimit=1", "logLevel=DEBUG"):
            assert _job_name(helm3, "--set", change) != first, change

    def test_the_name_does_not_change_with_unrelated_values(self, helm3: Helm) -> None:
        first = _job_name(helm3)
        for change in ("api.replicas=5", "controller.enabled=false", "monitoring.dashboards.enabled=false"):
            assert _job_name(helm3, "--set", change) == first, change

    def test_the_job_may_use_another_database_role_than_the_api(self, helm3: Helm) -> None:
        objects = render(helm3, profile=POSTGRES)
        names = {
            which: environment(one(objects, kind, ending))["FLEETWRIGHT_DATABASE_URL"]["secretKeyRef"]["name"]
            for which, kind, ending in (
                ("api", "Deployment", "-api"),
                ("migrate", "Job", _job_name(helm3, full=objects)),
            )
        }
        assert names == {"api": "fleetwright-database", "migrate": "fleetwright-migrations"}

    def test_the_job_is_not_a_helm_hook(self, helm3: Helm) -> None:
        job = one(render(helm3, *IN_POSTGRES), "Job", _job_name(helm3))
        assert "annotations" not in job["metadata"]

    def test_the_job_can_be_disabled(self, helm3: Helm) -> None:
        names = [item["metadata"]["name"] for item in render(helm3, *IN_POSTGRES, "--set", "migrations.enabled=false")]
        assert not [name for name in names if "migrate" in name]


class TestController:
    def test_several_replicas_stand_by_and_updates_keep_one_available(self, helm3: Helm) -> None:
        objects = render(helm3, "--set", "controller.replicas=2")
        controller = one(objects, "Deployment", "-controller")
        assert controller["spec"]["replicas"] == 2
        assert controller["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
        assert one(objects, "PodDisruptionBudget")["spec"]["selector"] == controller["spec"]["selector"]
        assert "PodDisruptionBudget" not in kinds(render(helm3))

    def test_one_replica_runs_with_the_url_and_the_token_of_the_api(self, helm3: Helm) -> None:
        objects = render(helm3, "--set", "api.service.port=80")
        controller, service = one(objects, "Deployment", "-controller"), one(objects, "Service")
        assert controller["spec"]["replicas"] == 1
        args = container(controller)["args"]
        assert args[:2] == ["controller", "run"]
        (port,) = container(controller)["ports"]
        options = dict(zip(args[2::2], args[3::2], strict=True))
        assert options == {
            "--url": f"http://{service['metadata']['name']}:80",
            "--token-file": _token_path(controller),
            "--period-s": "5",
            "--metrics-host": "0.0.0.0",
            "--metrics-port": str(port["containerPort"]),
        }
        probes = [container(controller)[f"{kind}Probe"]["httpGet"] for kind in ("liveness", "readiness")]
        assert probes == [{"path": "/healthz", "port": port["name"]}] * 2

    def test_a_separate_controller_token_is_used_if_given(self, helm3: Helm) -> None:
        controller = one(render(helm3, profile=POSTGRES), "Deployment", "-controller")
        secret = _volume(controller, "token")["secret"]
        assert (secret["secretName"], secret["items"]) == (
            "fleetwright-tokens",
            [{"key": "controller", "path": "token"}],
        )

    @pytest.mark.parametrize("only", [True, False])
    def test_observe_only_is_passed_to_the_controller(self, helm3: Helm, *, only: bool) -> None:
        objects = render(helm3, "--set", f"controller.observeOnly={str(only).lower()}")
        assert ("--observe-only" in container(one(objects, "Deployment", "-controller"))["args"]) is only

    def test_a_disabled_controller_leaves_no_objects(self, helm3: Helm) -> None:
        objects = render(helm3, "--set", "controller.enabled=false", profile=POSTGRES)
        assert not [item for item in objects if "controller" in item["metadata"]["name"]]


def _job_name(helm: Helm, *arguments: str, full: list[Object] | None = None) -> str:
    objects = full or render(helm, *IN_POSTGRES, *arguments)
    names = [item["metadata"]["name"] for item in objects if item["kind"] == "Job"]
    (name,) = (name for name in names if "-migrate-" in name)
    return str(name)


def _volume(item: Object, name: str) -> Object:
    (found,) = (volume for volume in item["spec"]["template"]["spec"]["volumes"] if volume["name"] == name)
    return dict(found)


def _token_path(item: Object) -> str:
    (mount,) = (mount for mount in container(item)["volumeMounts"] if mount["name"] == "token")
    (key,) = _volume(item, "token")["secret"]["items"]
    return f"{mount['mountPath']}/{key['path']}"


def _checksum(objects: list[Object], name: str) -> str | None:
    annotations: dict[str, str] = one(objects, "Deployment", name)["spec"]["template"]["metadata"]["annotations"]
    return annotations.get("checksum/bootstrap-token")
