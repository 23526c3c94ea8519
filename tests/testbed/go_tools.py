"""Builds the test control plane's programs from Go modules under `tests/controlplane/`, pinned by go.mod and go.sum.

A build uses only the Go toolchain and the configured module proxy.  The manifests of a program (resource definitions,
simulation stages) come from the same published modules, so they always match the program.
"""

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.testbed.requirements import UnavailableError

MODULES: Final = Path(__file__).parent.parent / "controlplane"
OLDEST_GO: Final = (1, 21)  # the first version that downloads the toolchain that a go.mod requires


@dataclass(frozen=True, kw_only=True)
class ManifestSet:
    """Selects files of a published module that a program needs."""

    module: str
    patterns: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Tools:
    """Describes one tools module: programs by file name, and folders of manifests by name."""

    fixtures: tuple[str, ...]
    released_as: str
    programs: Mapping[str, str]
    manifests: Mapping[str, ManifestSet] = field(default_factory=dict)
    stamps: tuple[str, ...] = ()
    directory: Path

    @property
    def name(self) -> str:
        return self.directory.name

    @property
    def file_names(self) -> tuple[str, ...]:
        return (*self.programs, *self.manifests)

    @property
    def version(self) -> str:
        """Return the version of the module `released_as`, as pinned in go.mod."""
        pinned = re.search(rf"^(?:require)?\s+{re.escape(self.released_as)} (v\S+)", self._read("go.mod"), re.MULTILINE)
        if pinned is None:
            raise ValueError(f"{self.directory}/go.mod does not require {self.released_as}")
        return pinned[1]

    def fingerprint(self) -> str:
        """Return a short digest of everything that the build depends on."""
        manifests = {name: [chosen.module, chosen.patterns] for name, chosen in self.manifests.items()}
        recipe = json.dumps([platform.machine(), dict(self.programs), manifests, self.stamps])
        own = [path.read_text() for path in sorted(self.directory.rglob("*.go"))]
        return hashlib.sha256(
            "\0".join([self._read("go.mod"), self._read("go.sum"), recipe, *own]).encode()
        ).hexdigest()[:12]

    def link_flags(self) -> str:
        major, minor, _ = self.version.removeprefix("v").split(".", 2)
        stamps = (stamp.format(version=self.version, major=major, minor=minor) for stamp in self.stamps)
        return " ".join(["-s", "-w", *(f"-X {stamp}" for stamp in stamps)])

    def _read(self, file_name: str) -> str:
        return (self.directory / file_name).read_text()


KUBERNETES: Final = Tools(
    directory=MODULES / "kubernetes",
    fixtures=("kube_api",),
    released_as="k8s.io/kubernetes",
    programs={
        "etcd": "go.etcd.io/etcd/server/v3",
        "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
        "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
        "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
        "kwok": "sigs.k8s.io/kwok/cmd/kwok",
    },
    manifests={
        "kwok-stages": ManifestSet(
            module="sigs.k8s.io/kwok",
            patterns=(
                "kustomize/stage/node/fast/node-*.yaml",
                "kustomize/stage/node/heartbeat-with-lease/node-*.yaml",
                "kustomize/stage/pod/fast/pod-*.yaml",
            ),
        )
    },
    # A server built without them reports v0.0.0, which no chart's kubeVersion accepts.
    stamps=(
        "k8s.io/component-base/version.gitVersion={version}",
        "k8s.io/component-base/version.gitMajor={major}",
        "k8s.io/component-base/version.gitMinor={minor}",
    ),
)

KUBERAY: Final = Tools(
    directory=MODULES / "kuberay",
    fixtures=("kuberay",),
    released_as="github.com/ray-project/kuberay/ray-operator",
    programs={"ray-operator": "github.com/ray-project/kuberay/ray-operator"},
    manifests={
        "kuberay-crds": ManifestSet(
            module="github.com/ray-project/kuberay/ray-operator", patterns=("config/crd/bases/*.yaml",)
        )
    },
)

KUEUE: Final = Tools(
    directory=MODULES / "kueue",
    fixtures=("kueue",),
    released_as="sigs.k8s.io/kueue",
    programs={"kueue": "sigs.k8s.io/kueue/cmd/kueue"},
    manifests={
        "kueue-crds": ManifestSet(module="sigs.k8s.io/kueue", patterns=("config/components/crd/bases/*.yaml",)),
        "kueue-webhooks": ManifestSet(
            module="sigs.k8s.io/kueue", patterns=("config/components/webhook/manifests.yaml",)
        ),
    },
)

HELM: Final = Tools(
    directory=MODULES / "helm",
    fixtures=("helm4", "helm"),
    released_as="helm.sh/helm/v4",
    programs={"helm": "helm.sh/helm/v4/cmd/helm"},
    stamps=("helm.sh/helm/v4/internal/version.version={version}",),
)

AUTOSCALERS: Final = Tools(
    directory=MODULES / "autoscalers",
    fixtures=("prometheus_adapter", "gjson"),
    released_as="sigs.k8s.io/prometheus-adapter",
    programs={
        "prometheus-adapter": "sigs.k8s.io/prometheus-adapter/cmd/adapter",
        "gjson": "fleetwright.invalid/tests/controlplane/autoscalers/gjson",
    },
)

ALL: Final = (KUBERNETES, KUBERAY, KUEUE, HELM, AUTOSCALERS)


def build(tools: Tools, into: Path) -> None:
    """Build the programs of `tools` and copy its manifests into the directory `into`."""
    _require_go(cwd=into)
    packages = list(tools.programs.values())
    _go(
        "build",
        "-buildvcs=false",
        "-trimpath",
        "-ldflags",
        tools.link_flags(),
        "-o",
        f"{into}/",
        *packages,
        cwd=tools.directory,
    )
    for name, package in tools.programs.items():
        (into / _built_name(package)).rename(into / name)
    for name, chosen in tools.manifests.items():
        source = Path(_go("list", "-m", "-f", "{{.Dir}}", chosen.module, cwd=tools.directory).strip())
        target = into / name
        target.mkdir()
        for pattern in chosen.patterns:
            for path in sorted(source.glob(pattern)):
                shutil.copyfile(path, target / path.name)


def _built_name(package: str) -> str:
    """Return the program name that Go gives to `package`: its last element that is not a major version."""
    elements = package.split("/")
    return elements[-2] if re.fullmatch(r"v\d+", elements[-1]) else elements[-1]


def _require_go(*, cwd: Path) -> None:
    if shutil.which("go") is None:
        raise UnavailableError(
            f"there is no Go toolchain on PATH to build it with (any from {_dotted(OLDEST_GO)} on will do)"
        )
    found = re.search(r"go(\d+)\.(\d+)", _go("version", cwd=cwd))
    if found is None or (int(found[1]), int(found[2])) < OLDEST_GO:
        raise UnavailableError(f"the Go toolchain on PATH is older than {_dotted(OLDEST_GO)}")


def _go(*arguments: str, cwd: Path) -> str:
    # Settings that would change the build; the machine's proxy and checksum database stay.
    environment = (
        {"HOME": str(Path.home())} | os.environ | {"GOFLAGS": "-mod=readonly", "GOWORK": "off", "CGO_ENABLED": "0"}
    )
    done = subprocess.run(["go", *arguments], cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last_lines = "\n".join(done.stderr.splitlines()[-15:])
        raise UnavailableError(f"`go {arguments[0]}` failed in {cwd}:\n{last_lines}")
    return done.stdout


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
