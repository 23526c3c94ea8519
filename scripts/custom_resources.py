"""Write the custom resource definitions of `helm/crds` from the schemas of the API.

A structural schema has no references and no unions.  References are written out down to `MAX_DEPTH`; unions and deeper
parts keep any content, and the service checks them.  Defaults are left out: the API applies them.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import BaseModel

from api.schemas.targets import TargetSpec
from planner.request import PlanRequest

FOLDER: Final = Path(__file__).parent.parent / "helm" / "crds"
GROUP: Final = "fleetwright.io"
VERSION: Final = "v1alpha1"
MAX_DEPTH: Final = 5
MAX_DESCRIPTION: Final = 300
ANYTHING: Final[Mapping[str, Any]] = {"x-kubernetes-preserve-unknown-fields": True}
KEPT: Final = frozenset(
    (
        *("description", "minimum", "maximum", "minLength", "maxLength", "pattern", "enum"),
        *("minItems", "maxItems", "minProperties", "maxProperties", "required"),
    )
)
HEADER: Final = "# Written by `python -m scripts.custom_resources`.\n"
NAME: Final = {"type": "string", "maxLength": 63, "pattern": "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"}
IMMUTABLE: Final = "is immutable: delete this object and create another"
CONDITION_COLUMNS: Final = {
    "FleetTarget": ("Ready", "Feasible", "Applied", "SLOMet", "PowerWithinBudget", "Frozen"),
    "PlanRequest": ("Ready", "Feasible", "SLOMet", "PowerWithinBudget"),
}


def structural(schema: Mapping[str, Any], definitions: Mapping[str, Any], *, depth: int = 0) -> dict[str, Any]:
    """Return the structural schema for a JSON schema of pydantic."""
    schema = _resolved(schema, definitions)
    options = [_resolved(each, definitions) for each in (*schema.get("anyOf", ()), *schema.get("oneOf", ()))]
    if options:
        return _union(schema, options, definitions, depth)
    kind = schema.get("type")
    if kind is None or (kind in {"object", "array"} and depth >= MAX_DEPTH):
        return {**({"type": kind} if kind == "object" else {}), **ANYTHING}
    found: dict[str, Any] = {"type": kind} | {key: value for key, value in schema.items() if key in KEPT}
    if "description" in found:
        found["description"] = " ".join(found["description"].split())[:MAX_DESCRIPTION]
    if "const" in schema:
        found["enum"] = [schema["const"]]
    for bound in ("Minimum", "Maximum"):
        if f"exclusive{bound}" in schema:
            found |= {bound.lower(): schema[f"exclusive{bound}"], f"exclusive{bound}": True}
    if kind == "array":
        found["items"] = structural(schema.get("items", {}), definitions, depth=depth + 1)
    elif kind == "object":
        found |= _members(schema, definitions, depth)
    elif schema.get("format") == "date-time":
        found["format"] = "date-time"
    return found


def definition(kind: str) -> dict[str, Any]:
    """Return the definition of one kind."""
    plural = f"{kind.lower()}s"
    names = {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()}
    shown = {"FleetTarget": _target(), "PlanRequest": _plan_request()}[kind]
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": list(_columns(kind)),
        "schema": {
            "openAPIV3Schema": {
                "type": "object",
                "required": ["spec"],
                "properties": {
                    "apiVersion": {"type": "string"},
                    "kind": {"type": "string"},
                    "metadata": {"type": "object"},
                    "spec": shown,
                    "status": _status(),
                },
            }
        },
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": names | {"categories": ["fleetwright"]},
            "scope": "Namespaced",
            "versions": [version],
        },
    }


def rendered(kind: str) -> str:
    return HEADER + yaml.safe_dump(definition(kind), sort_keys=False, width=120)


def path_of(kind: str) -> Path:
    return FOLDER / f"{kind.lower()}s.yaml"


def _target() -> dict[str, Any]:
    target = _schema_of(TargetSpec)
    target["x-kubernetes-validations"] = [
        {
            "rule": "!has(self.expert_maps) || size(self.expert_maps) == 0 || !has(self.application.kind)"
            " || self.application.kind == 'ray_serve'",
            "message": "expert_maps needs an application of kind ray_serve",
        },
    ]
    # An application is one of several kinds: its kind is checked here, its fields by the service.
    target["properties"]["application"] = {
        "type": "object",
        "properties": {"kind": {"type": "string", "enum": _kinds()}},
        **ANYTHING,
    }
    policy = {
        "type": "string",
        "enum": ["Retain", "Delete"],
        "description": "What happens to the target of the API when this object is deleted; default Retain.",
    }
    return _spec("target", target, "The target, as the API defines it.", deletionPolicy=policy)


def _plan_request() -> dict[str, Any]:
    request = _schema_of(PlanRequest)
    workloads = request["properties"]["workloads"]
    workloads["maxItems"] = 100  # bounds the cost of the rules
    request["x-kubernetes-validations"] = [
        {
            "rule": "self.workloads.all(w, has(w.options) || has(w.slo))",
            "message": "each workload needs an slo, or options",
            "fieldPath": ".workloads",
        },
        {
            "rule": "self.workloads.all(w, self.workloads.exists_one(v, v.name == w.name))",
            "message": "the names of workloads must be unique",
            "fieldPath": ".workloads",
        },
    ]
    return _spec("request", request, "The request, as the API defines it.")


def _spec(document: str, schema: Mapping[str, Any], description: str, **more: Any) -> dict[str, Any]:
    named = "Name in the API; default: the name of this object."
    rule = {"rule": "has(self.name) == has(oldSelf.name) && (!has(self.name) || self.name == oldSelf.name)"}
    return {
        "type": "object",
        "required": [document],
        "properties": {
            "name": NAME | {"description": named},
            "project": NAME | {"description": "Project of the API; default: that of the controller's token."},
            **more,
            document: {**schema, "description": description},
        },
        "x-kubernetes-validations": [rule | {"message": f"name {IMMUTABLE}", "fieldPath": ".name"}],
    }


def _status() -> dict[str, Any]:
    text, number = {"type": "string"}, {"type": "integer"}
    condition = {
        "type": "object",
        "required": ["type", "status", "reason", "message", "lastTransitionTime"],
        "properties": {
            "type": text,
            "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
            "observedGeneration": number | {"format": "int64"},
            "lastTransitionTime": {"type": "string", "format": "date-time"},
            "reason": text,
            "message": text,
        },
    }
    conditions = {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": condition,
    }
    return {
        "type": "object",
        "properties": {
            "observedGeneration": number | {"format": "int64"},
            "name": text,
            "version": number,
            "digest": text | {"description": "Of the document that the controller has written."},
            "planId": text,
            "phase": text,
            "costPerHour": text | {"description": "In US dollars."},
            "conditions": conditions,
        },
    }


def _columns(kind: str) -> Iterator[dict[str, Any]]:
    if kind == "FleetTarget":
        yield {"name": "Mode", "type": "string", "jsonPath": ".spec.target.mode"}
    yield {"name": "Plan", "type": "string", "jsonPath": ".status.planId"}
    yield {"name": "Phase", "type": "string", "jsonPath": ".status.phase"}
    if kind == "PlanRequest":
        yield {"name": "$/h", "type": "string", "jsonPath": ".status.costPerHour"}
    for name in CONDITION_COLUMNS[kind]:
        path = f'.status.conditions[?(@.type=="{name}")].status'
        wide = {} if name in {"Ready", "Feasible", "Applied"} else {"priority": 1}
        yield {"name": name, "type": "string", "jsonPath": path} | wide
    yield {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}


def _schema_of(model: type[BaseModel]) -> dict[str, Any]:
    schema = model.model_json_schema()
    return structural(schema, schema.get("$defs", {}))


def _kinds() -> list[str]:
    schema = TargetSpec.model_json_schema()
    application = _resolved(schema["properties"]["application"], schema["$defs"])
    options = application.get("oneOf") or application.get("anyOf") or ()
    return sorted({_resolved(each, schema["$defs"])["properties"]["kind"]["const"] for each in options})


def _resolved(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    while "$ref" in schema:
        own = {key: value for key, value in schema.items() if key != "$ref"}
        schema = {**definitions[schema["$ref"].rpartition("/")[2]], **own}
    return schema


def _union(
    schema: Mapping[str, Any], options: list[Mapping[str, Any]], definitions: Mapping[str, Any], depth: int
) -> dict[str, Any]:
    """Keep the only alternative to null; several alternatives keep any content."""
    some = [each for each in options if each.get("type") != "null"]
    nullable = {"nullable": True} if len(some) < len(options) else {}
    described = {key: value for key, value in schema.items() if key == "description"}
    if len(some) != 1:
        return {**ANYTHING, **nullable}
    return structural({**some[0], **described}, definitions, depth=depth) | nullable


def _members(schema: Mapping[str, Any], definitions: Mapping[str, Any], depth: int) -> dict[str, Any]:
    if properties := schema.get("properties"):
        return {"properties": {n: structural(p, definitions, depth=depth + 1) for n, p in properties.items()}}
    values = next(iter(schema.get("patternProperties", {}).values()), schema.get("additionalProperties"))
    if isinstance(values, Mapping):
        return {"additionalProperties": structural(values, definitions, depth=depth + 1)}
    return dict(ANYTHING)


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for kind in CONDITION_COLUMNS:
        path_of(kind).write_text(rendered(kind))
