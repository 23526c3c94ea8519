"""`/`: serve the console, a page in the browser for planners and operators.

The page is static: HTML, CSS and ES modules of `api/server/console`, without a build.  It reads and writes through the
API like every other client.  Every URL is relative, so that it also works behind a gateway that adds a prefix.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from importlib.resources import files
from importlib.resources.abc import Traversable

from fastapi import APIRouter
from fastapi.responses import Response

from api.server.etags import IfNoneMatch, is_current
from api.server.problems import not_found

PAGE = "index.html"
MEDIA_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "cache-control": "no-cache",  # use the copy only after a check of its ETag: modules must be of one release
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
}

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True, slots=True)
class StaticFile:
    content: bytes
    media_type: str
    etag: str


@cache
def console_files() -> Mapping[str, StaticFile]:
    """Read all files of the console, by their path below `console/`."""
    return dict(_files_below(files("api.server") / "console", prefix=""))


def _files_below(folder: Traversable, *, prefix: str) -> list[tuple[str, StaticFile]]:
    found: list[tuple[str, StaticFile]] = []
    for each in folder.iterdir():
        if each.is_dir():
            found += _files_below(each, prefix=f"{prefix}{each.name}/")
        elif (media_type := MEDIA_TYPES.get(each.name.rpartition(".")[2])) is not None:
            content = each.read_bytes()
            etag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
            found.append((f"{prefix}{each.name}", StaticFile(content, media_type, etag)))
    return found


@router.get("/", name="Console")
async def page(if_none_match: IfNoneMatch = None) -> Response:
    """The page of the console."""
    return _send(PAGE, if_none_match)


@router.get("/console/{path:path}", name="File of the console")
async def file(path: str, if_none_match: IfNoneMatch = None) -> Response:
    """A module, a style sheet or an icon."""
    return _send(path, if_none_match)


def _send(path: str, if_none_match: str | None) -> Response:
    found = console_files().get(path)
    if found is None:
        raise not_found("file of this name in the console")
    headers = HEADERS | {"etag": found.etag}
    if is_current(if_none_match, etag=found.etag):
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    return Response(found.content, media_type=found.media_type, headers=headers)
