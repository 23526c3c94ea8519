"""`make check` fails where a change of the API breaks a client of the stored contract."""

import copy
from typing import Any

import pytest

from scripts.api_contract import breaks, contract

DOCUMENT: dict[str, Any] = {
    "paths": {
        "/v1/plans": {
            "get": {
                "parameters": [
                    {"in": "query", "name": "limit", "schema": {"type": "integer", "minimum": 1, "maximum": 200}}
                ],
                "responses": {
                    "200": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Page"}}}},
                    "404": {},
                },
            },
            "post": {
                "requestBody": {
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/PlanRequest"}}}
                },
                "responses": {"201": {}},
            },
        }
    },
    "components": {
        "schemas": {
            "Page": {
                "type": "object",
                "required": ["items"],
                "properties": {"items": {"type": "array", "items": {"$ref": "#/components/schemas/Plan"}}},
            },
            "Plan": {
                "type": "object",
                "required": ["id", "title"],
                "properties": {
                    "id": {"type": "string", "description": "Of the plan."},
                    "title": {"type": "string"},
                    "parent": {"anyOf": [{"$ref": "#/components/schemas/Plan"}, {"type": "null"}]},
                },
            },
            "PlanRequest": {
                "type": "object",
                "additionalProperties": False,
                "required": ["rate"],
                "properties": {
                    "rate": {"type": "number", "minimum": 0},
                    "solver": {"enum": ["highs", "cbc"]},
                    "note": {"type": "string", "maxLength": 100},
                },
            },
        }
    },
}


def changed(*path: str | int, to: Any = None) -> dict[str, Any]:
    """Return the document with one value replaced, or removed."""
    document = copy.deepcopy(DOCUMENT)
    place: Any = document
    for part in path[:-1]:
        place = place[part]
    if to is None:
        del place[path[-1]]
    else:
        place[path[-1]] = to
    return document


GET = ("paths", "/v1/plans", "get")
SCHEMAS = ("components", "schemas")
REQUEST = (*SCHEMAS, "PlanRequest", "properties")


def found(document: dict[str, Any]) -> list[str]:
    return list(breaks(contract(DOCUMENT), contract(document)))


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (changed(*GET), "GET /v1/plans is gone"),
        (changed(*GET, "parameters", to=[]), "GET /v1/plans: parameter query limit is gone"),
        (changed(*GET, "parameters", 0, "required", to=True), "GET /v1/plans: parameter query limit is required now"),
        (changed(*GET, "parameters", 0, "schema", "maximum", to=100), "query limit has maximum 100 now"),
        (changed(*SCHEMAS, "Plan", "properties", "title"), "response 200.items[].title is gone"),
        (changed(*SCHEMAS, "Plan", "required", to=["id"]), "response 200.items[].title can be absent now"),
        (
            changed(*SCHEMAS, "Plan", "properties", "id", to={"anyOf": [{"type": "string"}, {"type": "null"}]}),
            "response 200.items[].id can be null now",
        ),
        (changed(*REQUEST, "note"), "POST /v1/plans: body.note is no longer known"),
        (changed(*SCHEMAS, "PlanRequest", "required", to=["rate", "note"]), "body.note is required now"),
        (changed(*REQUEST, "solver", to={"enum": ["highs"]}), "body.solver no longer accepts =cbc"),
        (changed(*REQUEST, "rate", "type", to="integer"), "body.rate no longer accepts number"),
        (changed(*REQUEST, "rate", "minimum", to=1), "body.rate has minimum 1 now"),
        (changed("paths", "/v1/plans", "post", "responses", to={"202": {}}), "POST /v1/plans: status 201 is gone"),
    ],
)
def test_a_break_is_named(document: dict[str, Any], message: str) -> None:
    (line,) = found(document)
    assert line.endswith(message)


@pytest.mark.parametrize(
    "document",
    [
        DOCUMENT,
        changed(*GET, "parameters", 0, "schema", "maximum", to=500),
        changed("paths", "/v1/jobs", to={"get": {"responses": {"200": {}}}}),
        changed(*SCHEMAS, "Plan", "properties", "cost", to={"type": "number"}),
        changed(*SCHEMAS, "Plan", "properties", "id", "description", to="Another text."),
        changed(*REQUEST, "solver", to={"enum": ["highs", "cbc", "other"]}),
        changed(*REQUEST, "labels", to={"type": "object"}),
    ],
)
def test_an_addition_breaks_nobody(document: dict[str, Any]) -> None:
    assert found(document) == []
