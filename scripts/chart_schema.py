"""The generated files of the chart: values.schema.json, and files/defaults.json with the values of values.yaml.

`python -m scripts.chart_schema` writes them, `--check` compares them.  The schema joins three sources: the rules of
the chart (scripts/chart_values_schema.yaml), the models of embedded configuration files, and the types of Kubernetes
that values contain.  It has draft 7, which Helm 3 supports.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import kubernetes_validate
import yaml
from pydantic import BaseModel

from deploy.fault_monitor.job_config import JobConfig
from deploy.power_guard.config import GuardFile
from deploy.router.process import RouterFile

ROOT = Path(__file__).parents[1]
CHART = ROOT / "helm" / "fleetwright"
RULES = ROOT / "scripts" / "chart_values_schema.yaml"
KUBERNETES = "v1.37.0"  # the newest types; the API server of an older cluster ignores newer fields
TYPES = {
    "Toleration": "core",
    "Affinity": "core",
    "TopologySpreadConstraint": "core",
    "PodSecurityContext": "core",
    "SecurityContext": "core",
    "VolumeMount": "core",
    "EnvVarSource": "core",
    "NetworkPolicyPeer": "networking",
    "NetworkPolicyEgressRule": "networking",
}
# Models of embedded files, and their fields that the chart writes itself.
MODELS: Mapping[type[BaseModel], frozenset[str]] = {
    GuardFile: frozenset({"mode", "discover", "agent_token_file", "agent_tls", "budget_token_file", "budgets_from"}),
    JobConfig: frozenset(),
    RouterFile: frozenset({"table_file"}),
}

Schema = dict[str, Any]


def schema() -> Schema:
    rules: Schema = yaml.safe_load(RULES.read_text())
    definitions = rules.pop("$defs")
    pod = definitions.pop("pod")["properties"]
    closed = {name: _closed(node, pod) for name, node in definitions.items()}
    for model, own in MODELS.items():
        closed |= _of_model(model, own)
    closed |= _of_kubernetes()
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the Fleetwright chart",
        **_closed(rules, pod),
        "$defs": dict(sorted(closed.items())),
    }


def defaults() -> Schema:
    values: Schema = yaml.safe_load((CHART / "values.yaml").read_text())
    return values


def files() -> Iterator[tuple[Path, str]]:
    yield CHART / "values.schema.json", json.dumps(schema(), indent=1) + "\n"
    yield CHART / "files" / "defaults.json", json.dumps(defaults(), indent=1, ensure_ascii=False) + "\n"


def main(arguments: list[str]) -> int:
    stale = [path for path, text in files() if not path.exists() or path.read_text() != text]
    if arguments == ["--check"]:
        for path in stale:
            print(f"{path.name} is out of date: run python -m scripts.chart_schema", file=sys.stderr)
        return int(bool(stale))
    for path, text in files():
        path.write_text(text)
    print("wrote the schema of values and their defaults")
    return 0


def _closed(node: Any, pod: Schema) -> Any:
    """Return a node whose objects with known fields accept no other ones."""
    if isinstance(node, list):
        return [_closed(each, pod) for each in node]
    if not isinstance(node, dict):
        return node
    found = {key: value for key, value in node.items() if key not in {"pod", "x-open"}}
    if node.get("pod") is True:
        found["properties"] = node["properties"] | pod
    found = {
        key: {name: _closed(each, pod) for name, each in value.items()}
        if key in {"properties", "patternProperties"}
        else _closed(value, pod)
        for key, value in found.items()
    }
    if "properties" in found:
        found = {"type": "object", "additionalProperties": False, **found}
    return found


def _of_model(model: type[BaseModel], own: frozenset[str]) -> Schema:
    """Return the definitions of a configuration file; entries and defaults are partial, so no field is required."""
    whole = model.model_json_schema(ref_template=f"#/$defs/{model.__name__}.{{model}}")
    definitions = {f"{model.__name__}.{name}": node for name, node in whole.pop("$defs", {}).items()}
    whole["properties"] = {name: node for name, node in whole["properties"].items() if name not in own}
    whole.pop("required", None)
    for fields in whole["properties"].values():
        fields.pop("minItems", None)
        fields.pop("minProperties", None)
    used = _reached(whole, definitions)
    return {model.__name__: _draft_7(whole)} | {name: _draft_7(definitions[name]) for name in used}


def _draft_7(node: Any) -> Any:
    """Return a schema of pydantic in draft 7, without titles, descriptions and defaults."""
    if isinstance(node, list):
        return [_draft_7(each) for each in node]
    if not isinstance(node, dict):
        return node
    found: Schema = {}
    for key, value in node.items():
        if key in {"properties", "patternProperties"}:
            found[key] = {name: _draft_7(each) for name, each in value.items()}
        elif key == "prefixItems":
            found["items"], found["additionalItems"] = _draft_7(value), False
        elif key not in {"title", "description", "default", "format", "discriminator"}:
            found[key] = _draft_7(value)
    return found


def _of_kubernetes() -> Schema:
    folder = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema" / f"{KUBERNETES}-local-strict"
    definitions = json.loads((folder / "_definitions.json").read_text())["$defs"]
    wanted = {name: definitions[f"io.k8s.api.{group}.v1.{name}"] for name, group in TYPES.items()}
    used = _reached(list(wanted.values()), definitions)
    return {name: _plain(node) for name, node in wanted.items()} | {
        _short(name): _plain(definitions[name]) for name in used
    }


def _plain(node: Any) -> Any:
    """Return a type of Kubernetes without descriptions, and with short references."""
    if isinstance(node, list):
        return [_plain(each) for each in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return {"$ref": f"#/$defs/{_short(node['$ref'].rpartition('/')[2])}"}
    found: Schema = {}
    for key, value in node.items():
        if key == "properties":
            found[key] = {name: _plain(each) for name, each in value.items()}
        elif key not in {"description", "format", "$schema"} and not key.startswith("x-"):
            found[key] = _plain(value)
    return found


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _reached(node: Any, definitions: Mapping[str, Any]) -> list[str]:
    """Return the names of the definitions that a node refers to, directly or not."""
    found: dict[str, None] = {}
    pending = [node]
    while pending:
        current = pending.pop()
        if isinstance(current, dict):
            name = str(current.get("$ref", "")).rpartition("/")[2]
            if name in definitions and name not in found:
                found[name] = None
                pending.append(definitions[name])
            pending.extend(current.values())
        elif isinstance(current, list):
            pending.extend(current)
    return list(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
