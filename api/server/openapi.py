"""Builds the OpenAPI document, in which every operation lists its problems."""

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from api.schemas.problems import PROBLEM_MEDIA_TYPE, ProblemDetails
from api.server.examples import add_examples

_PARAMETER = re.compile(r"\{\w+\}")
Responses = dict[int | str, dict[str, Any]]

# Common to all operations that need a token.
COMMON = (401, 403, 422, 429, 503)
# A success with an `ETag`, or 304.
TAGGED: Responses = {
    200: {
        "description": "`ETag` names the version.",
        "headers": {"ETag": {"schema": {"type": "string"}, "required": True}},
    }
}
CACHED: Responses = TAGGED | {304: {"description": "The caller has this version."}}

# Problems of a request body.
WITH_BODY = (400, 413)

_REF = {"$ref": "#/components/schemas/ProblemDetails"}


def problems(*statuses: int) -> Responses:
    """Build the problem responses of an operation: the common ones and its own."""
    return {
        status: {"description": HTTPStatus(status).phrase, "content": {PROBLEM_MEDIA_TYPE: {"schema": _REF}}}
        for status in sorted({*COMMON, *statuses})
    }


def allowed_methods(app: FastAPI, path: str) -> str:
    """Return the value of `Allow` for a path: the methods of all its operations."""
    methods = {
        method.upper()
        for template, operations in app.openapi()["paths"].items()
        if re.fullmatch(_PARAMETER.sub("[^/]+", template), path)
        for method in operations
    }
    return ", ".join(sorted(methods | ({"HEAD"} if "GET" in methods else set())))


def add_openapi(app: FastAPI) -> None:
    """Replace the application's OpenAPI document by one with problems."""

    def document() -> Mapping[str, Any]:
        if app.openapi_schema is None:
            schema = get_openapi(
                title=app.title,
                version=app.version,
                summary=app.summary,
                description=app.description,
                routes=app.routes,
            )
            schema["components"]["schemas"]["ProblemDetails"] = ProblemDetails.model_json_schema(
                ref_template="#/components/schemas/{model}"
            )
            definitions = schema["components"]["schemas"]["ProblemDetails"].pop("$defs", {})
            schema["components"]["schemas"].update(definitions)
            add_examples(schema)
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign, assignment]  # the documented way to extend it
