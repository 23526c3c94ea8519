"""The packaged chart is one that Helm pulls from a registry, with the bills of materials of the images beside it."""

import hashlib
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from packaging.utils import canonicalize_name

from scripts.chart_package import CYCLONEDX, LOCKS, MANIFEST, TARGETS, package
from scripts.sbom import bill_of_materials, pins_of
from tests.testbed.helm import Helm
from tests.testbed.processes import LOOPBACK


@pytest.fixture(scope="module")
def packaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    package(folder)
    return folder


@pytest.fixture
def registry(packaged: Path) -> Iterator[str]:
    """Serve the layout as the repository `fleetwright` of a registry, read-only."""
    layout = packaged / "oci"
    index = json.loads((layout / "index.json").read_text())
    tags = {
        each["annotations"]["org.opencontainers.image.ref.name"]: each["digest"]
        for each in index["manifests"]
        if "annotations" in each
    }

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.do_GET(with_body=False)

        def do_GET(self, *, with_body: bool = True) -> None:
            kind, _, reference = self.path.removeprefix("/v2/fleetwright/").partition("/")
            digest = tags.get(reference, reference)
            path = layout / "blobs" / digest.replace(":", "/")
            found = path.is_file() or self.path == "/v2/"
            body = path.read_bytes() if path.is_file() else b"{}"
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", MANIFEST if kind == "manifests" else "application/octet-stream")
            self.send_header("Docker-Content-Digest", digest)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if with_body:
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer((LOOPBACK, 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"{LOOPBACK}:{server.server_port}"
        server.shutdown()


def test_helm_pulls_and_renders_the_chart_of_the_layout(registry: str, helm: Helm, tmp_path: Path) -> None:
    helm.run("pull", f"oci://{registry}/fleetwright", "--version", "0.2.0", "--plain-http", "--destination", tmp_path)
    rendered = helm.run("template", "demo", tmp_path / "fleetwright-0.2.0.tgz")
    assert "kind: Deployment" in rendered


def test_every_blob_of_the_layout_has_its_digest_and_size(packaged: Path) -> None:
    layout = packaged / "oci"
    assert json.loads((layout / "oci-layout").read_text()) == {"imageLayoutVersion": "1.0.0"}
    described = list(_descriptors(json.loads((layout / "index.json").read_text()), layout))
    blobs = {path.name: path.read_bytes() for path in (layout / "blobs" / "sha256").iterdir()}
    assert {each["digest"] for each in described} == {f"sha256:{name}" for name in blobs}
    for each in described:
        content = blobs[each["digest"].removeprefix("sha256:")]
        assert each["size"] == len(content)
        assert each["digest"] == f"sha256:{hashlib.sha256(content).hexdigest()}"


def test_the_bills_of_materials_refer_to_the_chart(packaged: Path) -> None:
    layout = packaged / "oci"
    chart, bills = json.loads((layout / "index.json").read_text())["manifests"]
    manifest = _blob(layout, bills)
    assert manifest["artifactType"] == CYCLONEDX
    assert manifest["subject"]["digest"] == chart["digest"]
    names = {each["annotations"]["org.opencontainers.image.title"] for each in manifest["layers"]}
    assert names == {f"fleetwright-0.2.0-{target}.cdx.json" for target in TARGETS}
    assert names == {path.name for path in packaged.glob("*.cdx.json")}


@pytest.mark.parametrize("target", TARGETS)
def test_a_bill_of_materials_has_every_package_that_linux_installs(target: str) -> None:
    lock = (LOCKS / f"{target}.lock").read_text()
    document = bill_of_materials(target=target, lock=lock, version="1.2.3")
    assert document == bill_of_materials(target=target, lock=lock, version="1.2.3")
    listed = {each["purl"]: each for each in document["components"]}
    # Read otherwise than `pins_of` does: every line of the lock that begins a package.
    names = {
        canonicalize_name(line.partition("==")[0]) for line in lock.splitlines() if "==" in line and line[0].isalnum()
    }
    assert {purl.removeprefix("pkg:pypi/").partition("@")[0] for purl in listed} == names - {"colorama", "pywin32"}
    assert all(each["properties"] for each in listed.values())
    assert set(document["dependencies"][0]["dependsOn"]) == listed.keys()


def test_a_bill_of_materials_has_one_version_of_each_package() -> None:
    pins = pins_of((LOCKS / "full.lock").read_text())
    assert len({pin.name for pin in pins}) == len(pins)


def _descriptors(document: dict[str, Any], layout: Path) -> Iterator[dict[str, Any]]:
    for each in (*document.get("manifests", ()), *document.get("layers", ()), *[document.get("config", {})]):
        if each:
            yield each
            if each["mediaType"] == MANIFEST:
                yield from _descriptors(_blob(layout, each), layout)


def _blob(layout: Path, descriptor: dict[str, Any]) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((layout / "blobs" / descriptor["digest"].replace(":", "/")).read_bytes())
    return content
