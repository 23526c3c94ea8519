"""The Ray sandbox of the emulator: isolation from other applications, cleanup, and errors."""

import json
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from deploy.emulator.ray_sandbox import Sandbox, SandboxError, existing_sandbox, wait_until

pytestmark = pytest.mark.anyio

APP = {"name": "demo", "import_path": "m:app"}


@dataclass
class Dashboard:
    """A double of the Ray dashboard that runs a declared application immediately."""

    applications: dict[str, Any] = field(default_factory=dict)
    status: str = "RUNNING"
    refuses: str | None = None
    puts: list[dict[str, Any]] = field(default_factory=list)

    @property
    def sandbox(self) -> Sandbox:
        http = httpx.AsyncClient(transport=httpx.MockTransport(self.answer))
        return Sandbox(http=http, dashboard_url="http://head:8265", serve_port=8123)

    def answer(self, request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return httpx.Response(200, json={"applications": self.applications})
        if self.refuses is not None:
            return httpx.Response(400, text=self.refuses)
        self.puts.append(json.loads(request.content))
        applications = self.puts[-1]["applications"]
        self.applications = {app["name"]: {"status": self.status, "message": "no such module"} for app in applications}
        return httpx.Response(200)


async def test_the_application_runs_in_the_block_and_is_deleted_afterwards() -> None:
    dashboard = Dashboard()
    async with dashboard.sandbox.deployed(APP, patience_s=60.0):
        assert list(dashboard.applications) == ["demo"]
    assert dashboard.applications == {}
    assert {(put["http_options"]["host"], put["http_options"]["port"]) for put in dashboard.puts} == {
        ("127.0.0.1", 8123)
    }


async def test_the_application_is_deleted_after_an_error() -> None:
    dashboard = Dashboard()
    with pytest.raises(RuntimeError, match="in the middle"):
        async with dashboard.sandbox.deployed(APP, patience_s=60.0):
            raise RuntimeError("in the middle")
    assert dashboard.applications == {}


async def test_a_serve_instance_with_other_applications_is_not_changed() -> None:
    dashboard = Dashboard(applications={"theirs": {"status": "RUNNING"}})
    with pytest.raises(SandboxError, match="runs theirs; allowed: nothing"):
        async with dashboard.sandbox.deployed(APP, patience_s=60.0):
            pytest.fail("must not run")
    assert dashboard.puts == []


async def test_a_failed_application_is_reported_and_deleted() -> None:
    dashboard = Dashboard(status="DEPLOY_FAILED")
    with pytest.raises(SandboxError, match="could not run demo: no such module"):
        async with dashboard.sandbox.deployed(APP, patience_s=60.0):
            pytest.fail("must not run")
    assert dashboard.applications == {}


async def test_a_refusal_of_serve_is_reported() -> None:
    with pytest.raises(SandboxError, match="refuses the application: no import path"):
        async with Dashboard(refuses="no import path").sandbox.deployed(APP, patience_s=60.0):
            pytest.fail("must not run")


async def test_a_timeout_names_the_awaited_condition() -> None:
    async def never() -> bool:
        return False

    with pytest.raises(SandboxError, match=r"waited 0\.01 s for the moon"):
        await wait_until(never, description="the moon", patience_s=0.01)


async def test_an_address_that_is_no_dashboard_is_reported() -> None:
    with pytest.raises(SandboxError, match="does not respond as a Ray dashboard does"):
        async with existing_sandbox("http://127.0.0.1:9"):
            pytest.fail("no dashboard exists")
