"""`/docs` and `/openapi.json`: serve the reference of the API as a page.

Swagger UI's files come from the installed package `fastapi-offline`, so that the page loads nothing from another site.
Every URL of the page is relative, so that it also works behind a gateway that adds a prefix.
"""

import gzip
import json
from collections.abc import Mapping
from functools import cache, lru_cache
from importlib.resources import as_file, files
from types import MappingProxyType
from typing import Annotated

from fastapi import APIRouter, Path, Request
from fastapi.responses import HTMLResponse, Response

PACKAGE = "fastapi_offline"
CACHED = {"cache-control": "public, max-age=86400"}
# Swagger UI sets styles on elements and draws its icons from `data:` URLs.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Fleetwright API</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="docs/swagger-ui.css">
</head>
<body>
<div id="swagger-ui"></div>
<script src="docs/swagger-ui-bundle.js"></script>
<script src="docs/start.js"></script>
</body>
</html>
"""
# No validator: it would send the document to another site.
START = """SwaggerUIBundle({
  url: new URL("openapi.json", document.baseURI).href,
  dom_id: "#swagger-ui",
  deepLinking: true,
  validatorUrl: null,
});
"""
SCRIPT, STYLE = "text/javascript; charset=utf-8", "text/css; charset=utf-8"
PACKAGED = {"swagger-ui-bundle.js": SCRIPT, "swagger-ui.css": STYLE}

router = APIRouter(include_in_schema=False)


@router.get("/docs", name="API reference")
async def docs() -> Response:
    """The page."""
    return HTMLResponse(PAGE, headers={"content-security-policy": POLICY})


@router.get("/docs/start.js", name="Script of the API reference")
async def start() -> Response:
    """The script that starts Swagger UI on this service's document."""
    return Response(START, media_type=SCRIPT, headers=CACHED)


@router.get("/docs/{name}", name="File of the API reference")
async def packaged(
    request: Request, name: Annotated[str, Path(pattern="^(swagger-ui-bundle\\.js|swagger-ui\\.css)$")]
) -> Response:
    """A file of Swagger UI."""
    return _shared(request, _packaged(name), media_type=PACKAGED[name], headers=CACHED)


@router.get("/openapi.json", name="OpenAPI document")
async def openapi(request: Request) -> Response:
    """The document of all operations."""
    state = request.app.state
    if not hasattr(state, "openapi_document"):
        state.openapi_document = json.dumps(request.app.openapi(), ensure_ascii=False).encode()
    return _shared(request, state.openapi_document, media_type="application/json")


def _shared(
    request: Request, content: bytes, *, media_type: str, headers: Mapping[str, str] = MappingProxyType({})
) -> Response:
    """Respond with content that all requests share, compressed once: it is large, and anyone may ask for it."""
    headers = {"vary": "Accept-Encoding", **headers}
    if "gzip" in request.headers.get("accept-encoding", ""):
        content, headers = _compressed(content), headers | {"content-encoding": "gzip"}
    return Response(content, media_type=media_type, headers=headers)


@lru_cache(maxsize=8)
def _compressed(content: bytes) -> bytes:
    return gzip.compress(content, mtime=0)


@cache
def _packaged(name: str) -> bytes:
    with as_file(files(PACKAGE) / "static" / name) as path:
        return path.read_bytes()
