"""Provides the resource definitions and flag lists of other projects, where they lie beside the checkout.

`../shared/data/contracts` has them as their projects publish them.  Tests that need them are skipped without them.
"""

import gzip
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

CONTRACTS: Final = Path(__file__).parents[3] / "shared" / "data" / "contracts"
needs_contracts = pytest.mark.skipif(
    not CONTRACTS.is_dir(), reason="the definitions of other projects are only present beside the checkout"
)
# By kind; files ending in .gz are the definitions exactly as published.
DEFINITIONS: Final[Mapping[str, str]] = {
    "RayService": "kuberay/crd/ray.io_rayservices.yaml.gz",
    "LLMInferenceService": "kserve/crd/serving.kserve.io_llminferenceservices.yaml.gz",
    "LeaderWorkerSet": "lws/crd/leaderworkerset.x-k8s.io_leaderworkersets.yaml.gz",
    "DynamoGraphDeployment": "dynamo/crd/nvidia.com_dynamographdeployments.yaml.gz",
    "InferencePool": "gateway-api-inference-extension/crd/inference.networking.k8s.io_inferencepools.yaml",
    "PodAutoscaler": "aibrix/crd/autoscaling.aibrix.ai_podautoscalers.yaml",
    "StormService": "aibrix/crd/orchestration.aibrix.ai_stormservices.yaml.gz",
}


@cache
def definition(kind: str) -> dict[str, Any]:
    """Return the resource definition of a kind."""
    path = CONTRACTS / DEFINITIONS[kind]
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    found: dict[str, Any] = yaml.load(data, Loader=yaml.CSafeLoader)
    return found


@cache
def strict_schema(kind: str, api_version: str) -> dict[str, Any]:
    """Return the schema of one version, which refuses fields that the API server would drop."""
    name = api_version.rpartition("/")[2]
    (version,) = (each for each in definition(kind)["spec"]["versions"] if each["name"] == name)
    schema: dict[str, Any] = _strict(version["schema"]["openAPIV3Schema"])
    schema["properties"]["metadata"] = {"type": "object"}
    return schema


def flags_of(engine: str, version: str) -> frozenset[str]:
    """Return the flags that an engine has in a version, with their aliases."""
    by_version = json.loads((CONTRACTS / engine / "cli_flags_by_version.json").read_text())
    newest = json.loads((CONTRACTS / engine / "cli_flags_main.json").read_text())["flags"]
    present = {flag for flag, defaults in by_version.items() if defaults.get(version, "(absent)") != "(absent)"}
    assert present, f"no flags of {engine} {version} are known"
    return frozenset(present | {alias for flag in present for alias in newest.get(flag, {}).get("aliases", ())})


def _strict(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: _strict(value) for key, value in schema.items() if key not in {"format", "default", "description"}}
    if found.pop("x-kubernetes-int-or-string", False):
        return {"type": ["integer", "string"]}
    if found.pop("x-kubernetes-preserve-unknown-fields", False):
        return found
    if isinstance(found.get("properties"), dict) and found.get("type") == "object":
        found.setdefault("additionalProperties", False)
        if "metadata" in found["properties"] and "spec" in found["properties"]:
            found["properties"]["metadata"] = {"type": "object"}  # of pods: definitions leave its fields open
    return found
