"""Tests how the chart runs workers: pods of their own on PostgreSQL, in the API's container with SQLite."""

import re

import pytest

from api.cli.worker.run import worker_settings
from api.server.settings import Settings
from tests.helm.chart import POSTGRES, SQLITE, Object, container, environment, kinds, one, render
from tests.testbed.helm import Helm, HelmError

JOB_SETTINGS = {"FLEETWRIGHT_PLAN_CONCURRENCY", "FLEETWRIGHT_JOB_MEMORY_MIB", "FLEETWRIGHT_JOB_DEADLINE_S"}
VALUES = "worker.concurrency=3,worker.jobMemoryMiB=512,worker.jobDeadlineSeconds=60,worker.resources.limits.memory="
OWN_MIB = 300  # the worker, and the process that its jobs are forked from


class TestOnPostgresql:
    def test_workers_have_the_database_of_the_api_and_a_name_that_survives_a_restart(self, helm3: Helm) -> None:
        objects = render(helm3, profile=POSTGRES)
        worker, api = one(objects, "Deployment", "-worker"), one(objects, "Deployment", "-api")
        assert worker["spec"]["replicas"] == 2
        assert environment(worker)["FLEETWRIGHT_DATABASE_URL"] == environment(api)["FLEETWRIGHT_DATABASE_URL"]
        assert environment(worker)["POD_NAME"] == {"fieldRef": {"fieldPath": "metadata.name"}}
        (port,) = container(worker)["ports"]
        command, *options = container(worker)["args"]
        assert command == "worker"
        assert dict(zip(options[::2], options[1::2], strict=True)) == {
            "--name": "$(POD_NAME)",
            "--metrics-host": "0.0.0.0",
            "--metrics-port": str(port["containerPort"]),
        }
        probes = [container(worker)[f"{kind}Probe"]["httpGet"] for kind in ("liveness", "readiness")]
        assert probes == [{"path": "/healthz", "port": port["name"]}] * 2

    def test_workers_and_the_api_have_the_same_settings_of_jobs(
        self, helm3: Helm, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        objects = render(helm3, "--set", f"{VALUES}4Gi", profile=POSTGRES)
        of_worker, of_api = (_job_settings(one(objects, "Deployment", name)) for name in ("-worker", "-api"))
        assert of_worker == of_api
        assert of_worker.keys() == JOB_SETTINGS
        for name, value in of_worker.items():
            monkeypatch.setenv(name, value)
        settings = Settings()
        assert (settings.plan_concurrency, settings.job_memory_mib, settings.job_deadline_s) == (3, 512, 60.0)

    def test_several_workers_have_a_disruption_budget(self, helm3: Helm) -> None:
        objects = render(helm3, profile=POSTGRES)
        budget = one(objects, "PodDisruptionBudget", "-worker")
        assert budget["spec"]["maxUnavailable"] == 1
        assert budget["spec"]["selector"] == one(objects, "Deployment", "-worker")["spec"]["selector"]
        single = render(helm3, "--set", "worker.replicas=1", profile=POSTGRES)
        assert not [item for item in single if item["kind"] == "PodDisruptionBudget" and "worker" in _name(item)]

    def test_workers_have_no_token_and_no_service(self, helm3: Helm) -> None:
        objects = render(helm3, profile=POSTGRES)
        assert {item["kind"] for item in objects if _name(item).endswith("-worker")} == {
            "Deployment",
            "NetworkPolicy",
            "PodDisruptionBudget",
            "PodMonitor",
            "ServiceAccount",
        }
        volumes = one(objects, "Deployment", "-worker")["spec"]["template"]["spec"]["volumes"]
        assert [volume["name"] for volume in volumes] == ["tmp"]

    def test_disabled_workers_leave_no_objects(self, helm3: Helm) -> None:
        objects = render(helm3, "--set", "worker.enabled=false", profile=POSTGRES)
        assert not [item for item in objects if "worker" in _name(item)]


class TestMemory:
    def test_the_needed_memory_counts_every_slot_of_a_worker(self, helm3: Helm) -> None:
        slots = sum(worker_settings(Settings(plan_concurrency=3)).slots.values())
        needed_mib = slots * 512 + OWN_MIB
        with pytest.raises(HelmError, match=re.escape(f"need {needed_mib}Mi: (concurrency + 2) x jobMemoryMiB + 300")):
            render(helm3, "--set", f"{VALUES}{needed_mib - 1}Mi", profile=POSTGRES)
        assert "Deployment" in kinds(render(helm3, "--set", f"{VALUES}{needed_mib}Mi", profile=POSTGRES))

    @pytest.mark.parametrize("limit", ["3Gi", "3.5G", "3221225472", "3000M", "0.01Ti", "3145728Ki"])
    def test_every_form_of_a_quantity_that_is_large_enough_is_accepted(self, helm3: Helm, limit: str) -> None:
        assert "Deployment" in kinds(render(helm3, "--set", f"{VALUES}{limit}", profile=POSTGRES))

    @pytest.mark.parametrize("limit", ["2Gi", "2900M", "2902458367", "0.002Ti", "2834432Ki"])
    def test_every_form_of_a_quantity_that_is_too_small_is_refused(self, helm3: Helm, limit: str) -> None:
        with pytest.raises(HelmError, match=r"worker\.resources\.limits\.memory is \S+, but worker\.concurrency 3"):
            render(helm3, "--set", f"{VALUES}{limit}", profile=POSTGRES)


class TestWithSqlite:
    def test_the_api_runs_the_worker_and_has_its_settings(self, helm3: Helm) -> None:
        objects = render(helm3, profile=SQLITE)
        assert not [item for item in objects if "worker" in _name(item)]
        api = one(objects, "Deployment", "-api")
        assert _job_settings(api) == {
            "FLEETWRIGHT_PLAN_CONCURRENCY": "1",
            "FLEETWRIGHT_JOB_MEMORY_MIB": "512",
            "FLEETWRIGHT_JOB_DEADLINE_S": "900",
        }
        assert "--no-worker" not in container(api)["args"]

    def test_the_container_of_the_api_has_the_resources_of_both(self, helm3: Helm) -> None:
        cpu = "api.resources.requests.cpu=1.5,worker.resources.requests.cpu=250m"
        memory = "api.resources.limits.memory=1Gi,worker.resources.limits.memory=5G"
        found = container(one(render(helm3, "--set", f"{cpu},{memory}"), "Deployment", "-api"))["resources"]
        assert found == {"requests": {"cpu": "1750m", "memory": "768Mi"}, "limits": {"memory": "5793Mi"}}

    def test_the_api_on_postgresql_has_only_its_own_resources(self, helm3: Helm) -> None:
        found = container(one(render(helm3, profile=POSTGRES), "Deployment", "-api"))["resources"]
        assert found == {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}}


def _job_settings(item: Object) -> dict[str, str]:
    return {name: value for name, value in environment(item).items() if name in JOB_SETTINGS}


def _name(item: Object) -> str:
    return str(item["metadata"]["name"])
