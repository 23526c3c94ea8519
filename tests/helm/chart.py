"""The chart as tests see it: rendered by a real Helm into plain objects."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from tests.testbed.helm import Helm

ROOT: Final = Path(__file__).parents[2]
CHART: Final = ROOT / "helm" / "fleetwright"
ALERTS: Final = CHART / "files" / "alerts.yaml"
PROFILES: Final = sorted((CHART / "ci").glob("*-values.yaml"))
SQLITE: Final = CHART / "ci" / "dev-sqlite-values.yaml"
POSTGRES: Final = CHART / "ci" / "ha-postgres-values.yaml"
RELEASE: Final = "demo"
NAMESPACE: Final = "fleet"

Object = dict[str, Any]


def render(helm: Helm, *arguments: str | Path, release: str = RELEASE, profile: Path | None = None) -> list[Object]:
    """Every object the chart makes of these values."""
    text = helm.run("template", release, CHART, "--namespace", NAMESPACE, *given(profile), *arguments)
    return [document for document in yaml.safe_load_all(text) if document]


def given(profile: Path | None) -> list[str]:
    """The arguments that give Helm a profile."""
    return ["--values", str(profile)] if profile is not None else []


def one(objects: Iterable[Object], kind: str, name: str = "") -> Object:
    """The only object of a kind, or the only one of those whose name ends so."""
    (found,) = (item for item in objects if item["kind"] == kind and item["metadata"]["name"].endswith(name))
    return found


def kinds(objects: Iterable[Object]) -> set[str]:
    """The kinds among these objects."""
    return {item["kind"] for item in objects}


def pod_templates(objects: Iterable[Object]) -> Iterator[tuple[str, Object]]:
    """The pod template of each object that has one, and that object's name."""
    for item in objects:
        if item["kind"] in {"DaemonSet", "Deployment", "Job"}:
            yield item["metadata"]["name"], item["spec"]["template"]


def container(item: Object) -> Object:
    """The only container of a workload."""
    (found,) = item["spec"]["template"]["spec"]["containers"]
    return dict(found)


def environment(item: Object) -> Object:
    """What each variable of the only container is set to."""
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in container(item)["env"]}
