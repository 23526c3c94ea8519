"""Provides diagnoses as a fault monitor reports them, with a real bundle of a generated job."""

import base64
import gzip
from copy import deepcopy
from functools import cache
from typing import Any

from api.server.examples import bodies
from faults.bundle import read_bundle, write_bundle
from faults.monitor import MonitorSettings
from faults.replay import calls
from tests.faults.stories import Story

SETTINGS = MonitorSettings(slow=None)
HANG = Story(nodes=4, behind=2, end_s=8.0)
NODES = {str(index): f"gpu-{index}" for index in range(HANG.nodes)}


@cache
def bundle_text() -> str:
    """Return the bundle of a job in which node 2 never enters the collective."""
    what = calls(HANG.observations(), period_s=SETTINGS.judge_s)
    return "".join(write_bundle(HANG.job, SETTINGS, what, version="0.0.1"))


def packed(text: str) -> str:
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def report(**changes: Any) -> dict[str, Any]:
    """Return the bundle's diagnosis, with the bundle."""
    (diagnosis,) = read_bundle(bundle_text().splitlines(keepends=True)).diagnoses
    body = {"job": "llm-7b", "diagnosis": diagnosis.model_dump(mode="json"), "nodes": NODES}
    return body | {"bundle": packed(bundle_text())} | changes


def node_diagnosis(name: str, /, **changes: Any) -> dict[str, Any]:
    """Return a diagnosis that quarantines a node at once, without a bundle."""
    example: dict[str, Any] = deepcopy(bodies()["report_diagnosis"])
    diagnosis = example["diagnosis"] | {"reason": f"all sockets of {name} vanished"} | changes
    return example | {"diagnosis": diagnosis, "nodes": {"0": name}}
