"""Tests that a real API server with the published resource definitions admits every object of an exported plan."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from planner.export import Dialect
from planner.result import Plan
from tests.planner.export.plans import exported, mixed_plan, solved_plan, split_plan, wide_plan
from tests.testbed.contracts import DEFINITIONS, definition, needs_contracts
from tests.testbed.control_plane import control_plane
from tests.testbed.kube_api import KubeApi
from tests.testbed.requirements import skipping_where_unavailable

pytestmark = [pytest.mark.kubernetes, needs_contracts]

PLANS = {"split": split_plan, "two vendors": mixed_plan, "two nodes": wide_plan, "solved": solved_plan}
MANIFESTS = [dialect for dialect in Dialect if dialect not in {Dialect.VLLM, Dialect.SGLANG}]
CASES = [
    (name, dialect)
    for name in PLANS
    for dialect in MANIFESTS
    if name != "two nodes" or dialect not in {Dialect.AIBRIX, Dialect.KSERVE}  # which refuse it
]


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeApi]:
    """Run a control plane of its own: operators of the shared one bring other versions of the same definitions."""
    crds = tmp_path_factory.mktemp("definitions")
    for kind in DEFINITIONS:
        (crds / f"{kind.lower()}.yaml").write_text(yaml.dump(definition(kind), Dumper=yaml.CSafeDumper))
    with (
        skipping_where_unavailable("kubernetes", what="control plane"),
        control_plane(tmp_path_factory.mktemp("control-plane")) as running,
    ):
        running.install_crds(crds)
        yield running


@pytest.mark.parametrize(("name", "dialect"), CASES)
def test_every_object_is_admitted_whole(name: str, dialect: Dialect, api: KubeApi) -> None:
    for manifest in objects(PLANS[name](), dialect):
        stored = api.apply(manifest)
        assert stored["metadata"]["uid"]
        assert pruned(manifest, stored) == []


def test_an_unknown_field_is_refused(api: KubeApi) -> None:
    """Otherwise the tests above would show nothing."""
    graph = next(each for each in objects(split_plan(), Dialect.DYNAMO) if each["kind"] == "DynamoGraphDeployment")
    graph["spec"]["components"][0]["gpus"] = 1
    with pytest.raises(Exception, match=r"\.gpus: field not declared in schema"):
        api.apply(graph)


def objects(plan: Plan, dialect: Dialect) -> Iterator[dict[str, Any]]:
    for file in exported(plan, dialect):
        yield from yaml.load_all(file.text, Loader=yaml.CSafeLoader)


def pruned(wanted: Any, stored: Any, path: str = "") -> list[str]:
    """The places of a manifest that the server dropped or changed."""
    if isinstance(wanted, dict):
        if not isinstance(stored, dict):
            return [] if not wanted and stored is None else [path]
        return [place for key, value in wanted.items() for place in pruned(value, stored.get(key), f"{path}.{key}")]
    if isinstance(wanted, list):
        if not isinstance(stored, list) or len(stored) != len(wanted):
            return [] if not wanted and stored is None else [path]
        return [place for at, value in enumerate(wanted) for place in pruned(value, stored[at], f"{path}[{at}]")]
    return [] if wanted == stored else [path]
