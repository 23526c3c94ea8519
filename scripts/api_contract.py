"""The contract of the HTTP API: a snapshot in the repository, and a check that no change breaks a client of it.

`python -m scripts.api_contract` writes the snapshot of the API as it is, unless that would break clients of the last
one; `--accept-breaking` writes it anyway.  `--check` fails for a break, and for a snapshot that is out of date.

A client breaks when an operation, a parameter or a field disappears, when a request must have more or may have less
than before, or when a response may lack or contain what it could not before.  New operations, optional parameters and
fields of responses break no client.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from scripts.reference_docs import api_document

SNAPSHOT: Final = Path(__file__).parents[1] / "docs" / "reference" / "api-contract.json"
DESCRIBING: Final = frozenset({"description", "title", "examples", "example", "summary", "default", "x-order"})
LOWER_BOUNDS: Final = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
UPPER_BOUNDS: Final = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
METHODS: Final = frozenset({"get", "put", "post", "delete", "patch"})
REF: Final = "$ref"
Json = Mapping[str, Any]


def main(arguments: Sequence[str]) -> int:
    now = contract(api_document())
    text = written(now)
    stored = SNAPSHOT.read_text() if SNAPSHOT.exists() else None
    broken = list(breaks(json.loads(stored), now)) if stored is not None else []
    if "--check" not in arguments and (not broken or "--accept-breaking" in arguments):
        SNAPSHOT.write_text(text)
        print(f"wrote {SNAPSHOT.name}: {len(now['operations'])} operations")
        return 0
    for line in broken:
        print(f"breaks clients: {line}", file=sys.stderr)
    if stored != text and not broken:
        print(f"{SNAPSHOT.name} is out of date: run python -m scripts.api_contract", file=sys.stderr)
    return int(bool(broken) or stored != text)


def contract(document: Json) -> dict[str, Any]:
    """Reduce an OpenAPI document to what clients depend on."""
    operations = {
        f"{method.upper()} {path}": _operation(operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if method in METHODS
    }
    return {"operations": operations, "schemas": _stripped(document["components"]["schemas"])}


def written(found: Json) -> str:
    """Write one line per operation and schema, so that a difference shows which one changed."""
    parts = []
    for section, entries in found.items():
        lines = [f"  {json.dumps(name)}: {json.dumps(entries[name], sort_keys=True)}" for name in sorted(entries)]
        parts.append(f" {json.dumps(section)}: {{\n" + ",\n".join(lines) + "\n }")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def breaks(before: Json, after: Json) -> Iterator[str]:
    """Yield what clients of `before` cannot rely on in `after`."""
    for name, old in before["operations"].items():
        new = after["operations"].get(name)
        if new is None:
            yield f"{name} is gone"
            continue
        for problem in _operation_breaks(_Schemas(before["schemas"], after["schemas"]), old, new):
            yield f"{name}: {problem}"


@dataclass(frozen=True, slots=True)
class _Schemas:
    before: Json
    after: Json


def _operation_breaks(schemas: _Schemas, old: Json, new: Json) -> Iterator[str]:
    for key, required in old["parameters"].items():
        if key not in new["parameters"]:
            yield f"parameter {key} is gone"
        elif new["parameters"][key]["required"] and not required["required"]:
            yield f"parameter {key} is required now"
        else:
            yield from _narrowed(schemas, required["schema"], new["parameters"][key]["schema"], key, set())
    for key, parameter in new["parameters"].items():
        if parameter["required"] and key not in old["parameters"]:
            yield f"parameter {key} is new and required"
    if old["body"] is not None and new["body"] is not None:
        yield from _narrowed(schemas, old["body"], new["body"], "body", set())
    elif (old["body"] is None) != (new["body"] is None):
        yield "the body is new" if old["body"] is None else "the body is gone"
    for status, schema in old["responses"].items():
        if status not in new["responses"]:
            yield f"status {status} is gone"
        elif schema is not None and (found := new["responses"][status]) is not None:
            yield from _widened(schemas, schema, found, f"response {status}", set())


def _narrowed(schemas: _Schemas, old: Json, new: Json, at: str, seen: set[tuple[str, str]]) -> Iterator[str]:
    """Yield what a request could have before and cannot now."""
    old, new = _followed(schemas.before, old), _followed(schemas.after, new)
    if _visited(old, new, seen):
        return
    missing = _forms(schemas.before, old) - _forms(schemas.after, new)
    if missing - ({"integer"} if "number" in _forms(schemas.after, new) else set()):
        yield f"{at} no longer accepts {', '.join(sorted(map(str, missing)))}"
    yield from _tightened(old, new, at)
    for name, inner in old.get("properties", {}).items():
        if name in new.get("properties", {}):
            yield from _narrowed(schemas, inner, new["properties"][name], f"{at}.{name}", seen)
        elif new.get("properties") and new.get("additionalProperties") is False:
            yield f"{at}.{name} is no longer known"
    for name in set(new.get("required", ())) - set(old.get("required", ())):
        if old.get("properties") is not None:
            yield f"{at}.{name} is required now"
    for old_inner, new_inner, part in _inner(old, new):
        yield from _narrowed(schemas, old_inner, new_inner, f"{at}{part}", seen)


def _widened(schemas: _Schemas, old: Json, new: Json, at: str, seen: set[tuple[str, str]]) -> Iterator[str]:
    """Yield what a response could not be before and can now."""
    old, new = _followed(schemas.before, old), _followed(schemas.after, new)
    if _visited(old, new, seen):
        return
    added = {form for form in _forms(schemas.after, new) - _forms(schemas.before, old) if not form.startswith("=")}
    if added and _forms(schemas.before, old):
        yield f"{at} can be {', '.join(sorted(added))} now"
    for name, inner in old.get("properties", {}).items():
        found = new.get("properties", {}).get(name)
        if found is None:
            if "properties" in new:
                yield f"{at}.{name} is gone"
            continue
        if name in old.get("required", ()) and name not in new.get("required", ()):
            yield f"{at}.{name} can be absent now"
        yield from _widened(schemas, inner, found, f"{at}.{name}", seen)
    for old_inner, new_inner, part in _inner(old, new):
        yield from _widened(schemas, old_inner, new_inner, f"{at}{part}", seen)


def _inner(old: Json, new: Json) -> Iterator[tuple[Json, Json, str]]:
    for key, part in (("items", "[]"), ("additionalProperties", "{}")):
        if isinstance(old.get(key), Mapping) and isinstance(new.get(key), Mapping):
            yield old[key], new[key], part
    for key in ("anyOf", "oneOf"):  # compared where the alternatives are as many and in the same order
        pairs = old.get(key, ()), new.get(key, ())
        if len(pairs[0]) == len(pairs[1]):
            yield from ((one, other, "") for one, other in zip(*pairs, strict=True))


def _tightened(old: Json, new: Json, at: str) -> Iterator[str]:
    for name in LOWER_BOUNDS:
        if name in new and (name not in old or new[name] > old[name]):
            yield f"{at} has {name} {new[name]} now"
    for name in UPPER_BOUNDS:
        if name in new and (name not in old or new[name] < old[name]):
            yield f"{at} has {name} {new[name]} now"
    if "pattern" in new and new["pattern"] != old.get("pattern"):
        yield f"{at} has the pattern {new['pattern']} now"


def _forms(schemas: Json, schema: Json) -> set[str]:
    """Return the types and values that a schema allows; empty: any."""
    schema = _followed(schemas, schema)
    if "enum" in schema:
        return {f"={value}" for value in schema["enum"]}
    if "const" in schema:
        return {f"={schema['const']}"}
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return set().union(*(_forms(schemas, each) for each in schema[key]))
    kind = schema.get("type")
    return set(kind) if isinstance(kind, list) else {kind} if isinstance(kind, str) else set()


def _followed(schemas: Json, schema: Json) -> Json:
    while REF in schema:
        schema = schemas[schema[REF].rpartition("/")[2]]
    return schema


def _visited(old: Json, new: Json, seen: set[tuple[str, str]]) -> bool:
    """Check whether this pair was compared already, as in a schema that contains itself."""
    pair = str(id(old)), str(id(new))
    if pair in seen:
        return True
    seen.add(pair)
    return False


def _operation(operation: Json) -> dict[str, Any]:
    parameters = {
        f"{each['in']} {each['name']}": {"required": each.get("required", False), "schema": _stripped(each["schema"])}
        for each in operation.get("parameters", ())
    }
    return {
        "parameters": parameters,
        "body": _json_schema(operation.get("requestBody", {})),
        "responses": {
            status: _json_schema(response)
            for status, response in operation["responses"].items()
            if status.startswith(("2", "3"))
        },
    }


def _json_schema(message: Json) -> Any:
    schema = message.get("content", {}).get("application/json", {}).get("schema")
    return _stripped(schema) if schema is not None else None


def _stripped(value: Any) -> Any:
    """Drop what only describes.  A property may have the name of a describing keyword."""
    if isinstance(value, Mapping):
        return {
            key: {name: _stripped(inner) for name, inner in each.items()}
            if key == "properties" and isinstance(each, Mapping)
            else _stripped(each)
            for key, each in value.items()
            if key not in DESCRIBING
        }
    return [_stripped(each) for each in value] if isinstance(value, list) else value


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
