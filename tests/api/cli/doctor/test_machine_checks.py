"""Checks of the settings and of the machine: certificates, contradictions, disk, memory, Ray."""

import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from api.cli.doctor import machine_checks
from api.cli.doctor.findings import Finding, Outcome
from api.server import Settings
from tests.testbed.certificates import Authority, KeyPair
from tests.testbed.processes import LOOPBACK, free_ports

pytestmark = pytest.mark.anyio

NOW = datetime.now(UTC)


async def checked(name: str, *, now: datetime = NOW, **settings: Any) -> Finding:
    return await machine_checks.CHECKS[name](machine_checks.Machine(Settings(**settings), now))


@pytest.fixture
def pair(tmp_path: Path) -> KeyPair:
    return Authority.create(tmp_path).issue("server", common_name="fleetwright", hosts=[LOOPBACK])


@pytest.mark.parametrize(
    ("days_left", "outcome"), [(31, Outcome.OK), (29, Outcome.WARNING), (2, Outcome.FAILURE), (-1, Outcome.FAILURE)]
)
async def test_a_certificate_that_expires_soon_is_reported(pair: KeyPair, days_left: int, outcome: Outcome) -> None:
    expires_at = machine_checks.expiry_of(pair.cert_path, pair.key_path)
    now = expires_at - timedelta(days=days_left)
    found = await checked("tls-certificate", now=now, tls_cert_file=pair.cert_path, tls_key_file=pair.key_path)
    assert found.outcome is outcome
    assert f"{expires_at:%Y-%m-%d}" in found.detail


async def test_a_key_of_another_certificate_is_a_failure(pair: KeyPair, tmp_path: Path) -> None:
    other = Authority.create(tmp_path / "other").issue("other", common_name="fleetwright", hosts=[LOOPBACK])
    found = await checked("tls-certificate", tls_cert_file=pair.cert_path, tls_key_file=other.key_path)
    assert found.outcome is Outcome.FAILURE


@pytest.mark.parametrize(
    "settings",
    [
        {"document_body_limit_bytes": 2**20, "body_limit_bytes": 2**19},
        {"retention_bundles_days": 400},
        {"idempotency_ttl_s": 10 * 86_400},
        {"oidc_groups": {"sre": {"scopes": ["admin"]}}},
        {"oidc_issuer": "https://issuer.invalid", "oidc_audience": "fleetwright"},
        {"kubernetes_tokens": True},
        {"insecure_no_auth": True, "anonymous_read": True},
        {"result_reuse_s": 2 * 86_400.0, "retention_plans_days": 1},
    ],
)
async def test_each_contradiction_of_settings_is_a_warning(settings: dict[str, Any]) -> None:
    found = await checked("settings-contradictions", **settings)
    assert found.outcome is Outcome.WARNING
    assert found.repair


async def test_the_default_settings_contradict_nothing() -> None:
    assert (await checked("settings-contradictions")).outcome is Outcome.OK


@pytest.mark.parametrize(
    ("settings", "outcome"),
    [
        ({}, Outcome.OK),
        ({"anonymous_read": True}, Outcome.OK),
        ({"insecure_no_auth": True}, Outcome.WARNING),
        ({"host": "0.0.0.0"}, Outcome.WARNING),
    ],
)
async def test_tokens_in_clear_text_and_missing_tokens_are_warnings(settings: dict[str, Any], outcome: Outcome) -> None:
    assert (await checked("exposure", **settings)).outcome is outcome


async def test_more_memory_for_jobs_than_the_machine_has_is_a_warning() -> None:
    assert (await checked("job-memory", job_memory_mib=1024**2)).outcome is Outcome.WARNING
    assert (await checked("job-memory", job_memory_mib=256, plan_concurrency=1)).outcome is Outcome.OK


async def test_more_connections_than_open_files_is_a_warning() -> None:
    assert (await checked("open-files", max_connections=1_000_000)).outcome is Outcome.WARNING
    assert (await checked("open-files", max_connections=16)).outcome is Outcome.OK


async def test_the_disk_of_an_sqlite_file_is_measured(tmp_path: Path) -> None:
    found = await checked("disk-space", database_url=f"sqlite+aiosqlite:///{tmp_path}/fleetwright.db")
    assert "MiB free" in found.detail
    missing = await checked("disk-space", database_url=f"sqlite+aiosqlite:///{tmp_path}/none/fleetwright.db")
    assert missing.outcome is Outcome.FAILURE
    server = await checked("disk-space", database_url="postgresql+psycopg://fleet:secret@db/fleet")
    assert server.outcome is Outcome.SKIPPED


async def test_the_address_of_ray_is_connected_to() -> None:
    with socket.create_server((LOOPBACK, 0)) as listener:
        address = f"{LOOPBACK}:{listener.getsockname()[1]}"
        assert (await checked("ray", job_ray_address=address)).outcome is Outcome.OK
    (port,) = free_ports(1)
    assert (await checked("ray", job_ray_address=f"{LOOPBACK}:{port}")).outcome is Outcome.FAILURE
    assert (await checked("ray", job_ray_address="auto")).outcome is Outcome.SKIPPED
