"""The pages have the names, types, labels and buckets of the engines, where their contracts are present."""

import ast
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from deploy.emulator.metric_pages import VERSIONS, EngineName, EngineState, Family, SglangPage, VllmPage
from deploy.emulator.metric_pages import sglang as sglang_page
from deploy.emulator.metric_pages import vllm as vllm_page

CONTRACTS = Path(__file__).parents[5] / "shared" / "data" / "contracts"
MAX_MODEL_LEN = 131_072
STATE = EngineState(now_s=1.0, running=0, waiting=0, cached_tokens=0, cache_tokens=10_000, preemptions=0)
CONFIGURED = {"vllm:cache_config_info"}  # its labels are the fields of a configuration
LENGTH_EDGES = {"build_1_2_5_buckets(max_model_len)": [n * 10**e for e in range(6) for n in (1, 2, 5)][:-2]}


def contract(engine: str, name: str) -> Any:
    path = CONTRACTS / engine / name
    if not path.is_file():
        pytest.skip(f"{path.name} of {engine} is absent")
    return json.loads(path.read_text()) if path.suffix == ".json" else path.read_text()


def families(engine: EngineName, version: str) -> dict[str, Family]:
    found = (
        vllm_page.families(version=version, max_model_len=MAX_MODEL_LEN)
        if engine == "vllm"
        else sglang_page.families(version=version)
    )
    return {family.name: family for family in found}


def exported(metric: Mapping[str, Any], name: str) -> str:
    """The name on the page: prometheus_client appends `_total` to counters that lack it."""
    return name if metric["type"] != "counter" or name.endswith("_total") else f"{name}_total"


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_types_labels_and_buckets_are_those_of_the_newest_engine(engine: EngineName) -> None:
    document = contract(engine, "metrics.json")
    known = {exported(metric, metric["name"]): metric for metric in document["metrics"]}
    for name, family in families(engine, VERSIONS[engine][-1]).items():
        metric = known[name]
        assert family.kind == metric["type"], name
        quoted = set(re.findall(r"'(\w+)'", metric["labels_expr"]))
        base = set(document["base_labels"])
        if name not in CONFIGURED:
            assert set(family.labels) - base == quoted - base, name
            assert {"model_name"} <= set(family.labels) <= base | quoted, name
        expression = metric.get("buckets_expr")
        if expression is None:
            assert family.buckets == (), name
        elif expression in LENGTH_EDGES or "generate_buckets" not in expression:
            expected = LENGTH_EDGES.get(expression) or ast.literal_eval(expression)
            assert list(family.buckets) == expected, name


@pytest.mark.parametrize(("engine", "version"), [(each, version) for each in VERSIONS for version in VERSIONS[each]])
def test_each_version_has_the_names_of_that_version(engine: EngineName, version: str) -> None:
    document = contract(engine, "metrics_by_version.json")
    listed = [each["version"] for each in document["versions"]]
    matching = [each for each in listed if each.lstrip("~v").startswith(f"{version}.") or each == f"v{version}"]
    wanted = matching[0] if matching else listed[-1]
    known = {
        exported(metric, name): metric["type"]
        for name, metric in document["metrics"].items()
        if wanted in metric["versions"]
    }
    ours = {name: family.kind for name, family in families(engine, version).items()}
    assert ours.items() <= known.items()


def test_the_families_of_vllm_are_those_of_a_captured_page() -> None:
    text = contract("vllm", "samples/metric_families_v0.26.0.txt")
    captured = dict(line.split() for line in text.splitlines() if line.startswith("vllm:"))
    ours = {name: family.kind for name, family in families("vllm", "0.26").items()}
    assert captured.items() - ours.items() == {
        (f"vllm:estimated_{each}_per_gpu_total", "counter") for each in ("flops", "read_bytes", "write_bytes")
    }
    assert ours.items() <= captured.items()


@pytest.mark.parametrize(("engine", "sample"), [("vllm", "metrics-2024-08-kubeai.prom"), ("sglang", "metrics.prom")])
def test_samples_have_the_form_of_a_captured_page(engine: EngineName, sample: str) -> None:
    """Names and types of samples, `le` included, of each family that old captured pages have too."""
    vllm = VllmPage(model="m", cache_tokens=10_000, max_model_len=16_384, version="0.10")
    page = (vllm if engine == "vllm" else SglangPage(model="m", version="0.5.4")).text(STATE).decode()
    ours = {each.name: each for each in text_string_to_metric_families(page)}
    captured = {each.name: each for each in text_string_to_metric_families(contract(engine, f"samples/{sample}"))}
    shared = ours.keys() & captured.keys()
    assert len(shared) >= 6
    for name in shared:
        assert ours[name].type == captured[name].type, name
        here, there = ({each.name for each in family[name].samples} for family in (ours, captured))
        assert here <= there, name
