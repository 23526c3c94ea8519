"""Tests the chart's containers with the real program: its options, its environment, its image."""

import re
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from api.cli.app import app
from api.server.settings import Settings
from tests.helm.chart import CHART, POSTGRES, ROOT, SQLITE, Object, container, environment, render
from tests.testbed.helm import Helm

DOCKERFILE = ROOT / "deploy" / "images" / "Dockerfile"
IMAGE_LOCK = ROOT / "deploy" / "images" / "requirements.lock"
TESTED_LOCK = ROOT / "requirements-dev.lock"
PINNED = re.compile(r"^\S+==[^\s;]+", re.MULTILINE)


@pytest.mark.parametrize(
    ("profile", "name"),
    [
        (SQLITE, "-api"),
        (SQLITE, "-controller"),
        (POSTGRES, "-migrate"),
        (POSTGRES, "-controller"),
        (POSTGRES, "-worker"),
    ],
)
@pytest.mark.parametrize("values", [[], ["--set", "controller.observeOnly=true"]], ids=["default", "observe-only"])
def test_the_command_line_accepts_every_argument(helm3: Helm, profile: Path, name: str, values: list[str]) -> None:
    """A trailing `--help` makes the program parse the arguments and refuse unknown ones without running."""
    arguments = container(_workload(render(helm3, *values, profile=profile), name))["args"]
    done = CliRunner().invoke(app, [*arguments, "--help"])
    assert done.exit_code == 0, done.output


def test_the_command_line_refuses_an_unknown_argument() -> None:
    assert CliRunner().invoke(app, ["serve", "--no-contoller", "--help"]).exit_code == 2


@pytest.mark.parametrize("profile", [SQLITE, POSTGRES], ids=lambda path: path.stem)
def test_the_service_has_every_setting_of_the_chart(helm3: Helm, profile: Path) -> None:
    known = {f"FLEETWRIGHT_{name.upper()}" for name in Settings.model_fields}
    assert environment(_workload(render(helm3, profile=profile), "-api")).keys() <= known


def test_the_service_accepts_the_settings(helm3: Helm, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment(_workload(render(helm3, profile=SQLITE), "-api")).items():
        monkeypatch.setenv(name, value)
    settings = Settings()
    assert (settings.host, settings.port, settings.log_level) == ("0.0.0.0", 8400, "DEBUG")


def test_chart_version_and_app_version_are_the_package_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == version("fleetwright")


class TestImage:
    def test_the_image_copies_only_existing_paths(self) -> None:
        sources = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE.read_text(), re.MULTILINE)
        paths = [ROOT / name for line in sources for name in line.split()]
        assert paths
        assert [path for path in paths if not path.exists()] == []

    def test_the_image_copies_every_package_of_the_project(self) -> None:
        declared = re.search(r"^packages = \[(.+)\]$", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
        assert declared is not None
        for package in re.findall(r'"(\w+)"', declared[1]):
            assert re.search(rf"^COPY {package} {package}/?$", DOCKERFILE.read_text(), re.MULTILINE), package

    def test_the_image_runs_as_the_user_of_the_chart(self, helm3: Helm) -> None:
        security = _workload(render(helm3), "-api")["spec"]["template"]["spec"]["securityContext"]
        assert f"USER {security['runAsUser']}:{security['runAsGroup']}" in DOCKERFILE.read_text()

    def test_the_image_compiles_every_kernel_for_any_processor_and_for_the_installed_packages(self) -> None:
        """A file run by its path imports what is installed; `python -c` would import the folder it runs in."""
        build, final = re.split(r"^FROM (?=\S+$)", DOCKERFILE.read_text(), maxsplit=1, flags=re.MULTILINE)
        assert build.rstrip().endswith("RUN python scripts/warm_numba_cache.py")
        for setting in ("NUMBA_CACHE_DIR=/opt/fleetwright/numba", "NUMBA_CPU_NAME=${NUMBA_CPU_NAME}"):
            assert setting in build
            assert setting in final

    def test_the_image_names_no_registry(self) -> None:
        bases = re.findall(r"^(?:FROM|ARG \w+=)\s*(\S+)", DOCKERFILE.read_text(), re.MULTILINE)
        assert bases
        assert not [base for base in bases if re.match(r"[^/]+[.:][^/]*/", base)]

    def test_the_image_installs_only_tested_versions(self) -> None:
        """Everything in the image is pinned by hash, at the version that the tests run with."""
        tested, image = (set(PINNED.findall(path.read_text())) for path in (TESTED_LOCK, IMAGE_LOCK))
        assert {"ray", "kubernetes", "psycopg", "fastapi"} <= {pin.partition("==")[0] for pin in image}
        assert image <= tested
        assert "--require-hashes" in DOCKERFILE.read_text()


def _workload(objects: list[Object], name: str) -> Object:
    (found,) = (item for item in objects if item["kind"] in {"Deployment", "Job"} and name in item["metadata"]["name"])
    return found
