"""Renders the chart with a real Helm into plain objects."""

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
    text = render_text(helm, *arguments, release=release, profile=profile)
    return [document for document in yaml.load_all(text, Loader=yaml.CSafeLoader) if document]  # ten times as fast


def render_text(helm: Helm, *arguments: str | Path, release: str = RELEASE, profile: Path | None = None) -> str:
    return helm.run("template", release, CHART, "--namespace", NAMESPACE, *given(profile), *arguments)


def given(profile: Path | None) -> list[str]:
    """Return the arguments that give Helm a profile."""
    return ["--values", str(profile)] if profile is not None else []


def one(objects: Iterable[Object], kind: str, name: str = "") -> Object:
    """Return the only object of a kind, or the only one of those whose name has this ending."""
    (found,) = (item for item in objects if item["kind"] == kind and item["metadata"]["name"].endswith(name))
    return found


def kinds(objects: Iterable[Object]) -> set[str]:
    return {item["kind"] for item in objects}


def pod_templates(objects: Iterable[Object]) -> Iterator[tuple[str, Object]]:
    """Yield the name and the pod template of each object that has one."""
    for item in objects:
        if item["kind"] in {"DaemonSet", "Deployment", "Job"}:
            yield item["metadata"]["name"], item["spec"]["template"]


def container(item: Object) -> Object:
    """Return the only container of a workload."""
    (found,) = item["spec"]["template"]["spec"]["containers"]
    return dict(found)


def environment(item: Object) -> Object:
    """Return the environment variables of the only container."""
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in container(item)["env"]}
