"""Tests the chart's containers with the real program: its options, its environment."""

from importlib.metadata import version
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from api.cli.app import app
from api.server.settings import Settings
from tests.helm.chart import CHART, POSTGRES, SQLITE, Object, container, environment, render
from tests.testbed.helm import Helm

STOCK = [
    "--set",
    "controller.stock.enabled=true,controller.stock.publishTopology=true,controller.stock.dra=true",
    "--set",
    "controller.stock.clusterQueues={gpus}",
]


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
@pytest.mark.parametrize(
    "values",
    [
        [],
        ["--set", "controller.observeOnly=true"],
        ["--set", "controller.kubernetes.enabled=true,controller.customResources.enabled=true", *STOCK],
    ],
    ids=["default", "observe-only", "kubernetes"],
)
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


def _workload(objects: list[Object], name: str) -> Object:
    (found,) = (item for item in objects if item["kind"] in {"Deployment", "Job"} and name in item["metadata"]["name"])
    return found
