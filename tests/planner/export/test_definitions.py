"""Every exported object satisfies the definition that its project publishes, or that of Kubernetes."""

from collections.abc import Iterator
from functools import cache
from typing import Any

import jsonschema_rs
import kubernetes_validate
import pytest
import yaml
from hypothesis import given

from planner.export import Dialect
from planner.result import Plan
from tests.planner.export.plans import exported, mixed_plan, plans, solved_plan, split_plan, wide_plan
from tests.testbed.contracts import DEFINITIONS, needs_contracts, strict_schema

KUBERNETES = "1.36"
BUILT_IN = {"Deployment", "Service", "ConfigMap", "HorizontalPodAutoscaler"}
FREE = [Dialect.LWS, Dialect.DYNAMO, Dialect.LLM_D]  # express every plan
ONE_NODE = [Dialect.AIBRIX, Dialect.KSERVE]

pytestmark = needs_contracts


def objects(plan: Plan, dialect: Dialect, **settings: Any) -> Iterator[dict[str, Any]]:
    for file in exported(plan, dialect, **settings):
        yield from yaml.load_all(file.text, Loader=yaml.CSafeLoader)


def check(manifest: dict[str, Any]) -> None:
    kind = manifest["kind"]
    if kind in BUILT_IN:
        kubernetes_validate.validate(manifest, KUBERNETES, strict=True)
    else:
        validator(kind, manifest["apiVersion"]).validate(manifest)


@cache
def validator(kind: str, api_version: str) -> Any:
    return jsonschema_rs.validator_for(strict_schema(kind, api_version))


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize("dialect", FREE)
@given(plan=plans())
def test_every_plan_as_objects_that_can_express_it(dialect: Dialect, engine: str, plan: Plan) -> None:
    for manifest in objects(plan, dialect, engine=engine):
        check(manifest)


@given(plan=plans(one_pair=True, one_rank=True))
def test_plans_with_at_most_one_pair_for_ray_serve(plan: Plan) -> None:
    for manifest in objects(plan, Dialect.RAYSERVICE):
        check(manifest)


@given(plan=plans(one_pair=True, one_node=True))
def test_plans_with_at_most_one_pair_of_single_nodes_for_kserve(plan: Plan) -> None:
    for manifest in objects(plan, Dialect.KSERVE):
        check(manifest)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@given(plan=plans(one_node=True))
def test_plans_of_single_nodes_for_aibrix(engine: str, plan: Plan) -> None:
    for manifest in objects(plan, Dialect.AIBRIX, engine=engine):
        check(manifest)


def test_the_examples_contain_every_kind() -> None:
    """Otherwise a definition above is never used."""
    found = set()
    for dialect in (*FREE, Dialect.RAYSERVICE, *ONE_NODE):
        for plan in (split_plan(), mixed_plan(), solved_plan(), *([] if dialect in ONE_NODE else [wide_plan()])):
            for manifest in objects(plan, dialect):
                check(manifest)
                found.add(manifest["kind"])
    assert found == {*DEFINITIONS, *BUILT_IN}


def test_the_schema_refuses_an_unknown_field() -> None:
    service = next(each for each in objects(solved_plan(), Dialect.LWS) if each["kind"] == "LeaderWorkerSet")
    template = service["spec"]["leaderWorkerTemplate"]["workerTemplate"]
    template["spec"]["containers"][0]["gpus"] = 1
    with pytest.raises(jsonschema_rs.ValidationError, match="'gpus' was unexpected"):
        check(service)
