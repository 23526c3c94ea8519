"""The series names of the profiles, against the lists and pages that servers have published."""

import json
from pathlib import Path

import pytest

from planner.demand.profiles import PROFILES, Names, Profile

CONTRACTS = Path(__file__).parents[4] / "shared" / "data" / "contracts"


def published(*path: str) -> str:
    file = CONTRACTS.joinpath(*path)
    if not file.exists():
        pytest.skip("the published metrics are not beside the checkout")
    return file.read_text()


def newest_names(profile: Profile) -> list[str]:
    fields: list[Names] = [
        *(profile.finished, profile.failed, profile.running, profile.queued, profile.kv_usage),
        *(profile.prefix_queries, profile.prefix_hits, profile.prefix_hit_rate, *profile.histograms()),
    ]
    return [names[0] for names in fields if names]


def test_vllm_names_are_those_of_a_server() -> None:
    families = {
        line.split()[0] for line in published("vllm", "samples", "metric_families_v0.26.0.txt").splitlines() if line
    }
    assert set(newest_names(PROFILES["vllm"])) <= families


@pytest.mark.parametrize("version", ["v0.9.2", "v0.10.0", "v0.23.0", "v0.24.0"])
def test_each_vllm_version_exports_one_name_of_each_field(version: str) -> None:
    metrics = json.loads(published("vllm", "metrics_by_version.json"))["metrics"]
    exported = {name for name, entry in metrics.items() if version in entry["versions"]}
    exported |= {f"{name}_total" for name in exported}
    profile = PROFILES["vllm"]
    for names in (profile.finished, profile.running, profile.queued, profile.kv_usage, *profile.histograms()):
        assert exported & set(names), names


def test_sglang_names_are_those_of_its_source() -> None:
    exported = {entry["name"] for entry in json.loads(published("sglang", "metrics.json"))["metrics"]}
    assert set(newest_names(PROFILES["sglang"])) <= exported


def test_tensorrt_llm_names_are_those_of_its_source() -> None:
    exported = {entry["name"] for entry in json.loads(published("trtllm", "metrics.json"))["metrics"]}
    assert set(newest_names(PROFILES["tensorrt-llm"])) <= exported


def test_dynamo_names_are_those_of_its_documentation() -> None:
    text = published("dynamo", "metrics", "metrics.json")
    assert all(f'"{name}"' in text for name in newest_names(PROFILES["dynamo"]))


def test_triton_names_are_on_a_captured_page() -> None:
    text = published("triton", "metrics.prom")
    assert all(f"\n{name}{{" in text for name in newest_names(PROFILES["triton"]))


def test_each_profile_states_what_it_was_checked_against() -> None:
    assert all(profile.checked_against for profile in PROFILES.values())
