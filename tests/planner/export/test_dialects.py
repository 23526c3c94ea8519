"""What the exported files contain: replicas, GPUs, roles, flags, weights and origin, the same for the same plan."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given

from fleet.documents import RuleError
from fleet.gpus import builtin_gpus
from planner import PlanRequest
from planner.engine_flags import ENGINE_VERSIONS
from planner.export import WRITERS, Dialect, ExportSettings, PlanSource, export_plan
from planner.options.enumeration import Layout
from planner.result import Plan
from tests.planner import requests
from tests.planner.export.plans import (
    SPLIT,
    exported,
    mixed_plan,
    option,
    plan_of,
    plans,
    solved_plan,
    split_plan,
    wide_plan,
)

MANIFESTS = [Dialect.LWS, Dialect.DYNAMO, Dialect.LLM_D]  # that express every plan


def objects(plan: Plan, dialect: Dialect, **settings: Any) -> list[dict[str, Any]]:
    files = exported(plan, dialect, **settings)
    return [each for file in files for each in yaml.load_all(file.text, Loader=yaml.CSafeLoader)]


def of_kind(found: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [each for each in found if each["kind"] == kind]


def replicas_of(found: list[dict[str, Any]]) -> int:
    """All replicas of the plan, however the dialect counts them."""
    workers = [
        component
        for graph in of_kind(found, "DynamoGraphDeployment")
        for component in graph["spec"]["components"]
        if component["type"] != "frontend"
    ]
    sets = [each["spec"] for kind in ("Deployment", "LeaderWorkerSet") for each in of_kind(found, kind)]
    return sum(each["replicas"] for each in (*workers, *sets))


def refusal(plan: Plan, dialect: Dialect, **settings: Any) -> str:
    with pytest.raises(RuleError) as refused:
        exported(plan, dialect, **settings)
    return str(refused.value)


@pytest.mark.parametrize("dialect", [*MANIFESTS, Dialect.VLLM, Dialect.SGLANG])
@given(plan=plans())
def test_the_same_plan_gives_the_same_bytes_under_unique_names(dialect: Dialect, plan: Plan) -> None:
    files = exported(plan, dialect)
    again = exported(Plan.model_validate_json(plan.model_dump_json()), dialect)
    assert files == again
    assert len({file.name for file in files}) == len(files)
    assert all(file.text.isascii() and file.text.endswith("\n") for file in files)


@pytest.mark.parametrize("dialect", MANIFESTS)
@given(plan=plans())
def test_all_replicas_of_the_plan_are_exported(dialect: Dialect, plan: Plan) -> None:
    found = objects(plan, dialect)
    assert replicas_of(found) == sum(entry.count for entry in plan.allocation)
    names = [(each["kind"], each["metadata"]["name"]) for each in found]
    assert len(set(names)) == len(names)
    assert all(len(name) <= 55 for _kind, name in names)


@given(plan=plans())
def test_every_pod_requests_the_gpus_of_its_node(plan: Plan) -> None:
    requested = 0
    for each in of_kind(objects(plan, Dialect.LWS), "LeaderWorkerSet"):
        template = each["spec"]["leaderWorkerTemplate"]
        pods = [template["workerTemplate"]] * (template["size"] - 1)
        pods.append(template.get("leaderTemplate", template["workerTemplate"]))
        limits = [pod["spec"]["containers"][0]["resources"]["limits"] for pod in pods]
        requested += each["spec"]["replicas"] * sum(int(count) for limit in limits for count in limit.values())
    assert requested == sum(entry.count * entry.gpus_per_replica for entry in plan.allocation)


class TestOrigin:
    def test_objects_name_plan_inputs_and_release(self) -> None:
        plan = solved_plan()
        (first, *others) = objects(plan, Dialect.LWS)
        annotations = first["metadata"]["annotations"]
        assert annotations["fleetwright.io/release"] == "0.2.0"
        assert annotations["fleetwright.io/plan"].startswith("sha256:")
        inputs = json.loads(annotations["fleetwright.io/inputs"])
        assert "gpu H100-SXM of 2026-11-21" in inputs
        assert not any("A100" in each for each in inputs)  # not in use
        assert all(
            each["metadata"]["annotations"]["fleetwright.io/inputs"] == json.dumps(inputs, separators=(",", ":"))
            for each in others
        )

    def test_a_stored_plan_has_its_id_and_the_digest_of_its_request(self) -> None:
        def annotations(rate_rps: float) -> dict[str, str]:
            request = PlanRequest.model_validate(requests.from_offers(rate_rps=rate_rps))
            source = PlanSource(plan=solved_plan(), plan_id="one", request=request, release="0.2.0")
            settings = ExportSettings()
            (file,) = export_plan(source, dialect=Dialect.LWS, settings=settings, gpus=builtin_gpus())
            (first, *_others) = yaml.load_all(file.text, Loader=yaml.CSafeLoader)
            found: dict[str, str] = first["metadata"]["annotations"]
            return found

        assert annotations(20)["fleetwright.io/plan"] == "one"
        assert annotations(20) == annotations(20)
        changed = {key for key, value in annotations(20).items() if annotations(30)[key] != value}
        assert changed == {"fleetwright.io/request-digest"}


class TestRouting:
    def test_a_config_map_has_the_weights_of_the_plan(self) -> None:
        plan = mixed_plan()
        (table,) = of_kind(objects(plan, Dialect.LLM_D), "ConfigMap")
        routing = json.loads(table["data"]["routing.json"])
        assert routing["buckets"] == plan.routing["chat"]
        deployed = {each["metadata"]["name"] for each in of_kind(objects(plan, Dialect.LLM_D), "Deployment")}
        assert set(routing["groups"].values()) == deployed
        assert set(routing["groups"]) == {entry.option for entry in plan.allocation}

    def test_kserve_weighs_services_by_their_share_of_the_requests(self) -> None:
        """The request states how many requests each bucket has; without one the buckets count the same."""
        small, large = option("L4", offer_id="here/l4"), option()
        routing = {"500x500": {small.name: 1.0}, "4000x500": {large.name: 1.0}}
        plan = plan_of({"chat": ("Llama-3.1-8B", [small, large], routing)})
        request = PlanRequest.model_validate(requests.from_offers())  # 70 and 30 % of the requests

        def weights(known: PlanRequest | None) -> dict[str, int]:
            source = PlanSource(plan=plan, request=known, release="0.2.0")
            (file,) = export_plan(source, dialect=Dialect.KSERVE, settings=ExportSettings(), gpus=builtin_gpus())
            services = of_kind(list(yaml.load_all(file.text, Loader=yaml.CSafeLoader)), "LLMInferenceService")
            assert {each["spec"]["router"]["route"]["group"] for each in services} == {"chat"}
            return {each["metadata"]["name"]: each["spec"]["router"]["route"]["weight"] for each in services}

        assert weights(request) == {"chat-l4-tp1": 700_000, "chat-h100-sxm-tp1": 300_000}
        assert weights(None) == {"chat-l4-tp1": 500_000, "chat-h100-sxm-tp1": 500_000}


class TestSplit:
    """Three prefill replicas of two H100 hand over to two decode replicas of four H200."""

    def test_kserve_has_two_counts_in_one_service(self) -> None:
        (service,) = of_kind(objects(split_plan(), Dialect.KSERVE), "LLMInferenceService")
        spec = service["spec"]
        assert (spec["replicas"], spec["prefill"]["replicas"]) == (2, 3)
        for pods, gpus in ((spec["template"], "4"), (spec["prefill"]["template"], "2")):
            (main,) = pods["containers"]
            assert main["resources"]["limits"] == {"nvidia.com/gpu": gpus}
            arguments = next(each["value"] for each in main["env"] if each["name"] == "VLLM_ADDITIONAL_ARGS")
            assert f"--tensor-parallel-size {gpus} " in arguments
            assert arguments.endswith('--kv-transfer-config \'{"kv_connector":"NixlConnector","kv_role":"kv_both"}\'')

    def test_dynamo_has_a_worker_of_each_role(self) -> None:
        (graph,) = of_kind(objects(split_plan(), Dialect.DYNAMO), "DynamoGraphDeployment")
        found = {each["type"]: each["replicas"] for each in graph["spec"]["components"]}
        assert found == {"frontend": 1, "prefill": 3, "decode": 2}
        for component in graph["spec"]["components"][1:]:
            args = component["podTemplate"]["spec"]["containers"][0]["args"]
            assert args[args.index("--disaggregation-mode") + 1] == component["type"]

    def test_aibrix_has_two_roles(self) -> None:
        found = objects(split_plan(), Dialect.AIBRIX, engine="sglang")
        (service,) = of_kind(found, "StormService")
        roles = service["spec"]["template"]["spec"]["roles"]
        assert {each["name"]: each["replicas"] for each in roles} == {"prefill": 3, "decode": 2}

    def test_llm_d_labels_the_pods(self) -> None:
        labels = [
            each["spec"]["template"]["metadata"]["labels"]
            for each in of_kind(objects(split_plan(), Dialect.LLM_D), "Deployment")
        ]
        (pool,) = of_kind(objects(split_plan(), Dialect.LLM_D), "InferencePool")
        assert [each["llm-d.ai/role"] for each in labels] == ["prefill", "decode"]
        assert all(each.items() >= pool["spec"]["selector"]["matchLabels"].items() for each in labels)

    def test_ray_serve_joins_both_in_one_application(self) -> None:
        (service,) = of_kind(objects(split_plan(), Dialect.RAYSERVICE), "RayService")
        (application,) = yaml.safe_load(service["spec"]["serveConfigV2"])["applications"]
        assert application["import_path"] == "ray.serve.llm:build_pd_openai_app"
        prefill, decode = (application["args"][f"{role}_config"] for role in ("prefill", "decode"))
        assert (prefill["deployment_config"]["num_replicas"], decode["deployment_config"]["num_replicas"]) == (3, 2)
        assert decode["engine_kwargs"]["kv_transfer_config"]["kv_connector"] == "NixlConnector"
        assert prefill["model_loading_config"]["model_id"] == decode["model_loading_config"]["model_id"]

    @pytest.mark.parametrize("dialect", [Dialect.KSERVE, Dialect.RAYSERVICE])
    def test_several_prefill_options_are_refused_by_name(self, dialect: Dialect) -> None:
        more = option(role="prefill", offer_id="here/more")
        plan = plan_of({"chat": ("Llama-3.1-70B", [*SPLIT, more], {})})
        assert "chat has 2 and 1; use lws, dynamo or llm-d" in refusal(plan, dialect)


class TestSeveralNodes:
    """Two replicas of 16 GPUs on instances of eight."""

    @pytest.mark.parametrize(
        ("engine", "of_both", "of_worker"),
        [
            ("vllm", ["--nnodes", "2", "--node-rank", "$(LWS_WORKER_INDEX)", "--master-addr"], ["--headless"]),
            ("sglang", ["--nnodes", "2", "--node-rank", "$(LWS_WORKER_INDEX)", "--dist-init-addr"], []),
        ],
    )
    def test_a_set_has_a_leader_and_a_worker(self, engine: str, of_both: list[str], of_worker: list[str]) -> None:
        (found,) = of_kind(objects(wide_plan(), Dialect.LWS, engine=engine), "LeaderWorkerSet")
        template = found["spec"]["leaderWorkerTemplate"]
        assert (found["spec"]["replicas"], template["size"]) == (2, 2)
        leader, worker = (template[name]["spec"]["containers"][0] for name in ("leaderTemplate", "workerTemplate"))
        assert all(set(each["args"]) >= set(of_both) for each in (leader, worker))
        assert set(worker["args"]) - set(leader["args"]) == set(of_worker)
        assert all(each["resources"]["limits"] == {"nvidia.com/gpu": "8"} for each in (leader, worker))
        assert "readinessProbe" not in worker

    def test_data_parallel_attention_over_nodes_is_refused_for_vllm_only(self) -> None:
        layout = Layout(attention_data_parallel=8, expert_parallel=8, pipeline_parallel=2)
        wide = option(layout=layout, precision="fp8")
        plan = plan_of({"chat": ("DeepSeek-V3", [wide], {})})
        assert "has data-parallel attention over several nodes; expected sglang" in refusal(plan, Dialect.LWS)
        assert exported(plan, Dialect.LWS, engine="sglang")

    def test_the_autoscaler_of_llm_d_scales_the_set(self) -> None:
        (scaler,) = of_kind(objects(wide_plan(), Dialect.LLM_D), "HorizontalPodAutoscaler")
        assert scaler["spec"]["scaleTargetRef"]["kind"] == "LeaderWorkerSet"
        assert scaler["metadata"]["annotations"]["llm-d.ai/variant-cost"] == "16"  # $/h of two instances

    @pytest.mark.parametrize("dialect", [Dialect.AIBRIX, Dialect.KSERVE])
    def test_some_dialects_refuse(self, dialect: Dialect) -> None:
        assert "takes 2 nodes; use lws for it" in refusal(wide_plan(), dialect)


class TestGpus:
    def test_pods_of_each_type_go_to_its_nodes_with_its_resource_and_image(self) -> None:
        found = of_kind(objects(mixed_plan(), Dialect.AIBRIX), "Deployment")
        amd, nvidia = (each["spec"]["template"]["spec"] for each in found)
        expressions = [
            each["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"][0][
                "matchExpressions"
            ][0]
            for each in (amd, nvidia)
        ]
        assert [each["key"] for each in expressions] == ["amd.com/gpu.product-name", "nvidia.com/gpu.product"]
        assert "AMD_Instinct_MI300X_OAM" in expressions[0]["values"]
        assert "NVIDIA-H100-80GB-HBM3" in expressions[1]["values"]
        assert [list(each["containers"][0]["resources"]["limits"]) for each in (amd, nvidia)] == [
            ["amd.com/gpu"],
            ["nvidia.com/gpu"],
        ]
        assert [each["containers"][0]["image"] for each in (amd, nvidia)] == [
            "registry.invalid/amd:1",
            "registry.invalid/nvidia:1",
        ]

    def test_ray_serve_refuses_data_parallel_attention(self) -> None:
        dp = option(layout=Layout(attention_data_parallel=8, expert_parallel=8), precision="fp8")
        plan = plan_of({"chat": ("DeepSeek-V3", [dp], {})})
        assert "has data-parallel attention; use lws" in refusal(plan, Dialect.RAYSERVICE)

    def test_the_label_and_its_value_may_be_given(self) -> None:
        settings = {"gpu_label": "cloud.example/accelerator", "gpu_value": {"H100-SXM": "h100-80gb"}}
        text = exported(solved_plan(), Dialect.LWS, **settings)[0].text
        assert "key: cloud.example/accelerator" in text
        assert "- h100-80gb" in text

    def test_a_vendor_without_a_published_image_needs_one(self) -> None:
        assert "image: is required for amd GPUs: no published image is known for dynamo" in refusal(
            mixed_plan(), Dialect.DYNAMO, image={}
        )
        assert exported(mixed_plan(), Dialect.DYNAMO, image={"any": "registry.invalid/any:1"})

    def test_a_lower_clock_is_an_annotation(self) -> None:
        _full, lower = of_kind(objects(mixed_plan(), Dialect.AIBRIX), "Deployment")
        assert lower["metadata"]["annotations"]["fleetwright.io/clock"] == "0.7"


class TestAutoscalers:
    """The objects read wanted counts by the name of what they scale."""

    def test_aibrix_reads_the_count_of_its_deployment(self) -> None:
        found = objects(solved_plan(), Dialect.AIBRIX, namespace="llm", counts_address="fleet.example:8400")
        (scaler,), (deployed,) = of_kind(found, "PodAutoscaler"), of_kind(found, "Deployment")
        (source,) = scaler["spec"]["metricsSources"]
        name = deployed["metadata"]["name"]
        assert (source["endpoint"], source["path"]) == ("fleet.example:8400", f"/metrics/llm/{name}")
        assert (source["metricSourceType"], source["targetValue"]) == ("domain", "1")
        assert scaler["spec"]["scaleTargetRef"]["name"] == name
        assert scaler["spec"]["maxReplicas"] == 2 * deployed["spec"]["replicas"]

    def test_llm_d_reads_the_gauge_of_its_variant(self) -> None:
        found = objects(solved_plan(), Dialect.LLM_D, namespace="llm")
        (scaler,), (deployed,) = of_kind(found, "HorizontalPodAutoscaler"), of_kind(found, "Deployment")
        (metric,) = (each["external"]["metric"] for each in scaler["spec"]["metrics"])
        assert metric["name"] == "wva_desired_replicas"
        labels = {"variant_name": deployed["metadata"]["name"], "exported_namespace": "llm"}
        assert metric["selector"]["matchLabels"] == labels
        assert scaler["metadata"]["annotations"].items() >= {
            ("llm-d.ai/managed", "true"),
            ("llm-d.ai/model-id", "meta-llama/Llama-3.1-70B"),
        }


class TestScripts:
    @pytest.mark.parametrize("dialect", [Dialect.VLLM, Dialect.SGLANG])
    @given(plan=plans())
    def test_a_shell_reads_the_flags_of_the_plan(self, dialect: Dialect, plan: Plan) -> None:
        """The scripts of replicas on one node; the last word is the caller's."""
        scripts = [file for file in exported(plan, dialect) if file.name.endswith(".sh")]
        assert len(scripts) == len(plan.allocation)
        expected = [entry.engine_flags[dialect.value] for entry in plan.allocation]  # type: ignore[index] # equal text
        for script in scripts:
            read = subprocess.run(
                ["sh", "-s", "--", "last"],
                input=script.text.replace("exec ", "printf '%s\\n' ", 1),
                env={"NODE_RANK": "0", "HEAD_ADDRESS": "head"},
                capture_output=True,
                text=True,
                check=True,
            ).stdout.splitlines()
            assert read.pop() == "last"
            alone = read[: read.index("--nnodes")] if "--nnodes" in read else read
            assert tuple(alone) in {(*each.command, *each.flags) for each in expected}


class TestRefusals:
    def test_options_that_the_request_gives_are_refused_by_name(self) -> None:
        message = refusal(requests.solved(requests.given()), Dialect.VLLM)
        assert "allocation[0].settings: are not known for option small" in message

    def test_a_plan_without_a_mix_is_refused(self) -> None:
        plan = requests.solved(
            requests.from_offers(rate_rps=1000) | {"offers": [requests.offer("a", "L4", 1, available=1)]}
        )
        assert "status" in refusal(plan, Dialect.LWS)

    def test_weights_of_an_unknown_workload_are_refused(self) -> None:
        assert "is no workload of the plan; it has: chat" in refusal(solved_plan(), Dialect.LWS, weights={"x": "y"})

    @pytest.mark.parametrize("dialect", [Dialect.KSERVE, Dialect.RAYSERVICE])
    def test_dialects_of_vllm_refuse_sglang(self, dialect: Dialect) -> None:
        assert "is sglang, expected vllm" in refusal(solved_plan(), dialect, engine="sglang")


def test_other_weights_may_be_given() -> None:
    files = exported(split_plan(), Dialect.VLLM, weights={"chat": "my/model"})
    assert all("exec vllm serve my/model \\\n" in file.text for file in files if file.name.endswith(".sh"))


def test_the_reference_lists_what_each_dialect_does_not_express() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "plan-export.md").read_text(encoding="utf-8")
    listed: dict[str, list[str]] = {}
    for section in page.split("\n## ")[1:]:
        title, _newline, text = section.partition("\n")
        items = [" ".join(item.split()) for item in text.split("\n- ")[1:]]
        listed |= dict.fromkeys(title.split(", "), items)
    of_manifests = listed.pop("all manifests")
    for dialect, writer in WRITERS.items():
        assert listed.pop(dialect) + ([] if writer.images is None else of_manifests) == list(writer.not_expressed)
    assert not listed
    for engine, version in ENGINE_VERSIONS.items():
        assert re.search(rf"{engine} {re.escape(version)}", page, re.IGNORECASE)
