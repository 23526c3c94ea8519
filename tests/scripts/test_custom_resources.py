"""The custom resource definitions are up to date, and their schemas are structural."""

from collections.abc import Iterator
from typing import Any

import pytest

from scripts.custom_resources import CONDITION_COLUMNS, definition, path_of, rendered, structural

KINDS = list(CONDITION_COLUMNS)


def parts_of(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield a schema and all schemas inside it."""
    yield schema
    for name in ("properties", "additionalProperties", "items"):
        inner = schema.get(name, {})
        for each in inner.values() if name == "properties" else [inner] if inner else []:
            yield from parts_of(each)


@pytest.mark.parametrize("kind", KINDS)
def test_the_file_is_what_the_script_writes(kind: str) -> None:
    assert path_of(kind).read_text() == rendered(kind), "run `python -m scripts.custom_resources`"


@pytest.mark.parametrize("kind", KINDS)
def test_every_part_has_a_type_or_keeps_any_content(kind: str) -> None:
    (version,) = definition(kind)["spec"]["versions"]
    for part in parts_of(version["schema"]["openAPIV3Schema"]):
        assert "type" in part or part["x-kubernetes-preserve-unknown-fields"]
        assert not {"$ref", "anyOf", "oneOf", "const", "default", "title"} & part.keys()


def test_null_bounds_constants_and_unions() -> None:
    definitions = {"Inner": {"type": "object", "properties": {"kind": {"const": "a", "type": "string"}}}}
    schema = {
        "type": "object",
        "properties": {
            "maybe": {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "null"}], "default": None},
            "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
            "inner": {"$ref": "#/$defs/Inner"},
        },
        "required": ["inner"],
    }
    assert structural(schema, definitions) == {
        "type": "object",
        "required": ["inner"],
        "properties": {
            "maybe": {"type": "number", "minimum": 0, "exclusiveMinimum": True, "nullable": True},
            "either": {"x-kubernetes-preserve-unknown-fields": True},
            "inner": {"type": "object", "properties": {"kind": {"type": "string", "enum": ["a"]}}},
        },
    }
