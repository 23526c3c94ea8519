"""The reference at `/docs`: everything that the page loads comes from the service itself."""

import re
from html.parser import HTMLParser
from urllib.parse import urljoin

import pytest

from api.server.routes.api_docs import START
from tests.testbed.service import RunningService

pytestmark = pytest.mark.anyio


class Loaded(HTMLParser):
    """Collects the URLs that a page loads."""

    def __init__(self) -> None:
        super().__init__()
        self.urls: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.urls += [value for name, value in attrs if name in {"href", "src"} and value]
        assert tag != "script" or dict(attrs).get("src"), "the policy refuses scripts in the page"


async def test_the_page_loads_only_what_the_service_serves(sqlite_service: RunningService) -> None:
    async with sqlite_service.client(None) as client:
        page = await client.get("/docs")
        assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
        policy = page.headers["content-security-policy"]
        assert "script-src 'self';" in policy
        assert "default-src 'none'" in policy
        loaded = Loaded()
        loaded.feed(page.text)
        files = [url for url in loaded.urls if not url.startswith("data:")]
        assert len(files) == 3
        for url in files:
            assert not re.match(r"[a-z]+:|/", url), "relative, so that a prefix of a gateway stays"
            found = await client.get(urljoin("/docs", url))
            assert found.status_code == 200, url
            assert found.headers["content-type"].startswith("text/css" if url.endswith(".css") else "text/javascript")
            assert len(found.content) > 100


async def test_the_script_reads_the_document_of_this_service(sqlite_service: RunningService) -> None:
    (document,) = re.findall(r'new URL\("([^"]+)", document\.baseURI\)', START)
    async with sqlite_service.client(None) as client:
        found = await client.get(urljoin("/docs", document))
    assert "/v1/plans" in found.json()["paths"]


async def test_no_other_file_of_the_package_is_served(sqlite_service: RunningService) -> None:
    async with sqlite_service.client(None) as client:
        for name in ("redoc.standalone.js", "..%2f__init__.py", "none.js"):
            assert (await client.get(f"/docs/{name}")).status_code in {404, 422}
