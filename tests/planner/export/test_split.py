"""A solved split: its two counts reach every dialect, and their ratio follows the length of the prompts."""

from typing import Any

import pytest
import yaml

from planner.export import Dialect
from planner.performance.config import Role
from planner.result import Plan
from tests.planner.export.plans import exported
from tests.planner.requests import from_offers, offer, solved

ROLES: tuple[Role, ...] = ("prefill", "decode")
SLO = {"ttft_ms": {"p99": 1000}, "tpot_ms": {"p99": 9}}
DIALECTS = [Dialect.KSERVE, Dialect.DYNAMO, Dialect.AIBRIX, Dialect.LLM_D, Dialect.LWS, Dialect.RAYSERVICE]


def plan_for(prompt_tokens: int) -> Plan:
    """The plan of one size on one GPU type, where fast tokens make a split worthwhile."""
    buckets = {"input_tokens": [prompt_tokens], "output_tokens": [250], "share": [[1.0]]}
    request = from_offers(split=True, rate_rps=60, slo=SLO, buckets=buckets, precisions=["fp8"])
    return solved(request | {"offers": [offer("here/h100", "H100-SXM", 4)]})


@pytest.fixture(scope="module")
def short() -> Plan:
    return plan_for(2000)


@pytest.fixture(scope="module")
def long() -> Plan:
    return plan_for(8000)


def counts(plan: Plan) -> dict[str, int]:
    """The planned replicas of each role of the split."""
    roles = {entry.settings.role: entry.count for entry in plan.allocation if entry.settings is not None}
    return {role: roles[role] for role in ROLES}


def exported_counts(plan: Plan, dialect: Dialect) -> dict[str, int]:
    """The replicas of each role in the files of a dialect."""
    found = [each for file in exported(plan, dialect) for each in yaml.safe_load_all(file.text)]
    return {role: count for each in found for role, count in _roles(each) if role != "both"}


def _roles(manifest: dict[str, Any]) -> list[tuple[str, int]]:
    """The roles of an object with their replicas; `both` for pods without a role."""
    spec = manifest.get("spec", {})
    found: list[tuple[str, int]] = []
    match manifest["kind"]:
        case "LLMInferenceService" if "prefill" in spec:
            found = [("decode", spec["replicas"]), ("prefill", spec["prefill"]["replicas"])]
        case "DynamoGraphDeployment":
            found = [(each["type"], each["replicas"]) for each in spec["components"] if each["type"] in ROLES]
        case "StormService":
            found = [(each["name"], each["replicas"]) for each in spec["template"]["spec"]["roles"]]
        case "Deployment":
            found = [(spec["template"]["metadata"]["labels"].get("llm-d.ai/role", "both"), spec["replicas"])]
        case "LeaderWorkerSet":
            labels = spec["leaderWorkerTemplate"]["workerTemplate"]["metadata"]["labels"]
            found = [(labels["fleetwright.io/role"], spec["replicas"])]
        case "RayService":
            applications = yaml.safe_load(spec["serveConfigV2"])["applications"]
            (split,) = (each["args"] for each in applications if "decode_config" in each["args"])
            found = [(role, split[f"{role}_config"]["deployment_config"]["num_replicas"]) for role in ROLES]
    return found


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_two_counts_are_those_of_the_plan(dialect: Dialect, short: Plan, long: Plan) -> None:
    for plan in (short, long):
        assert exported_counts(plan, dialect) == counts(plan)


def test_longer_prompts_take_a_larger_share_of_prefill(short: Plan, long: Plan) -> None:
    before, after = (exported_counts(plan, Dialect.DYNAMO) for plan in (short, long))
    assert after["prefill"] / after["decode"] > 1.5 * before["prefill"] / before["decode"]
