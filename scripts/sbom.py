"""Writes the bill of materials of one image: the Python packages of its lock file, in CycloneDX 1.6.

python -m scripts.sbom deploy/images/api.lock

It has no date and no random number, so the same lock file gives the same file.
"""

import hashlib
import json
import re
import sys
import tomllib
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from packaging.markers import Marker

from scripts.repo_checks import ROOT

PIN: Final = re.compile(
    r"^(?P<name>[\w.-]+)==(?P<version>[^\s;\\]+)(?: *; *(?P<marker>[^\\]+?))? *\\?$"
    r"(?P<hashes>(?:\n +--hash=\S+ ?\\?)*)",
    re.MULTILINE,
)
SHA256: Final = re.compile(r"--hash=sha256:([0-9a-f]{64})")
PLATFORM: Final = {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"}
PYTHON: Final = {"python_version": "3.13", "python_full_version": "3.13.0", "implementation_name": "cpython"}


@dataclass(frozen=True, slots=True)
class Pin:
    """Is one package of a lock file.  The digests are those of all its files, of which a platform installs one."""

    name: str
    version: str
    sha256: tuple[str, ...]

    @property
    def purl(self) -> str:
        return f"pkg:pypi/{re.sub(r'[-_.]+', '-', self.name).lower()}@{self.version}"


def pins_of(lock: str) -> list[Pin]:
    """Return the packages that a lock file installs in the image: on Linux, with the base's version of Python."""
    environment = PLATFORM | PYTHON
    return [
        Pin(found["name"], found["version"], tuple(sorted(SHA256.findall(found["hashes"]))))
        for found in PIN.finditer(lock)
        if found["marker"] is None or Marker(found["marker"]).evaluate(environment)
    ]


def bill_of_materials(*, target: str, lock: str, version: str) -> dict[str, Any]:
    """Return the document for the image of `target`."""
    own = f"pkg:pypi/fleetwright@{version}"
    pins = pins_of(lock)
    digest = hashlib.sha256(f"{own} {target} {lock}".encode()).hexdigest()
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.UUID(hex=digest[:32], version=4)}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": own,
                "name": f"fleetwright-{target}",
                "version": version,
                "purl": own,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            }
        },
        "components": [
            {
                "type": "library",
                "bom-ref": pin.purl,
                "name": pin.name,
                "version": pin.version,
                "purl": pin.purl,
                # Of every file of the release: `hashes` of a component would mean one file.
                "properties": [{"name": "fleetwright:file-sha256", "value": digest} for digest in pin.sha256],
            }
            for pin in pins
        ],
        "dependencies": [{"ref": own, "dependsOn": [pin.purl for pin in pins]}],
    }


def project_version() -> str:
    document = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    version: str = document["project"]["version"]
    return version


def main() -> int:
    lock = Path(sys.argv[1])
    document = bill_of_materials(target=lock.stem, lock=lock.read_text(encoding="utf-8"), version=project_version())
    print(json.dumps(document, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
