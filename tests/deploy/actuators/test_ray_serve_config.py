"""A change of one key of a user_config: the written config, and refusals."""

import json
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from deploy.actuators.base import ConfigWrite
from deploy.actuators.ray_serve.actuator import change_user_config
from deploy.actuators.ray_serve.client import ATTEMPTS, ServeClient
from deploy.common.errors import ActuationError, UnreachableError
from tests.deploy.actuators.serve_double import DASHBOARD_URL

pytestmark = pytest.mark.anyio

OTHER = {"name": "other", "import_path": "a:b", "route_prefix": "/other"}


@dataclass
class Dashboard:
    """Serve's configuration behind its REST interface."""

    declared: dict[str, Any] = field(default_factory=lambda: {"name": "chat", "import_path": "m:app"})
    effective: dict[str, Any] = field(default_factory=dict)  # effective options of deployment `on-h100`
    replicas: int = 4
    scalable: bool = True
    down: int = 0  # number of 503 responses
    puts_fail: bool = False
    puts: list[dict[str, Any]] = field(default_factory=list)
    scaled: list[tuple[str, Any]] = field(default_factory=list)

    @property
    def client(self) -> ServeClient:
        return ServeClient(httpx.AsyncClient(transport=httpx.MockTransport(self.answer)), DASHBOARD_URL)

    def answer(self, request: httpx.Request) -> httpx.Response:
        if self.down:
            self.down -= 1
            return httpx.Response(503, text="GCS is not ready")
        if request.method == "GET":
            return httpx.Response(200, json=self.details())
        if request.method == "PUT":
            self.puts.append(json.loads(request.content))
            return httpx.Response(503 if self.puts_fail else 200)
        self.scaled.append((request.url.path, json.loads(request.content)))
        return httpx.Response(200, json={"message": "ok"})

    def details(self) -> dict[str, Any]:
        deployment = {
            "target_num_replicas": self.replicas,
            "deployment_config": self.effective,
            "replicas": [{"replica_id": "a", "state": "RUNNING"}],
        }
        return {
            "proxy_location": "HeadOnly",
            "http_options": {"host": "127.0.0.1", "port": 8000},
            "target_capacity": None,
            "proxies": {},
            "applications": {
                "chat": {
                    "status": "RUNNING",
                    "external_scaler_enabled": self.scalable,
                    "deployed_app_config": self.declared,
                    "deployments": {"on-h100": deployment},
                },
                "other": {"status": "RUNNING", "deployed_app_config": OTHER, "deployments": {}},
                "by-code": {"status": "RUNNING", "deployed_app_config": None, "deployments": {}},
            },
        }


async def change(
    dashboard: Dashboard, value: Any, *, application: str = "chat", deployment: str = "on-h100", **expected: Any
) -> None:
    write = ConfigWrite(deployment=deployment, key="expert_map", value=value, **expected)
    await change_user_config(dashboard.client, application=application, write=write)


async def test_the_whole_declared_config_is_written_back_with_one_changed_key() -> None:
    dashboard = Dashboard(
        declared={
            "name": "chat",
            "import_path": "m:app",
            "args": {"x": 1},
            "deployments": [
                {"name": "Router", "user_config": {"table": 1}},
                {"name": "on-h100", "user_config": {"clock": 3}, "max_ongoing_requests": 7},
            ],
        },
        effective={"user_config": {"clock": 3}, "num_replicas": 2},
    )
    await change(dashboard, {"version": 1})
    (put,) = dashboard.puts
    changed = {
        "name": "on-h100",
        "user_config": {"clock": 3, "expert_map": {"version": 1}},
        "max_ongoing_requests": 7,
        "num_replicas": 4,
    }
    chat = dashboard.declared | {"deployments": [dashboard.declared["deployments"][0], changed]}
    assert put == {
        "proxy_location": "HeadOnly",
        "http_options": {"host": "127.0.0.1", "port": 8000},
        "applications": [chat, OTHER],
    }


async def test_user_config_keys_set_only_in_code_are_kept() -> None:
    dashboard = Dashboard(effective={"user_config": {"clock": 3}})
    await change(dashboard, 1)
    assert dashboard.puts[0]["applications"][0]["deployments"] == [
        {"name": "on-h100", "user_config": {"clock": 3, "expert_map": 1}, "num_replicas": 4}
    ]


async def test_no_count_is_declared_without_the_external_scaler() -> None:
    dashboard = Dashboard(scalable=False)
    await change(dashboard, 1)
    assert dashboard.puts[0]["applications"][0]["deployments"] == [
        {"name": "on-h100", "user_config": {"expert_map": 1}}
    ]


async def test_the_value_none_removes_the_key() -> None:
    dashboard = Dashboard(effective={"user_config": {"clock": 3, "expert_map": 1}})
    await change(dashboard, None)
    assert dashboard.puts[0]["applications"][0]["deployments"][0]["user_config"] == {"clock": 3}


async def test_a_deployment_without_replicas_is_scaled_back_to_zero() -> None:
    dashboard = Dashboard(replicas=0)
    await change(dashboard, 1)
    assert dashboard.puts[0]["applications"][0]["deployments"][0]["num_replicas"] == 1
    path = "/api/v1/applications/chat/deployments/on-h100/scale"
    assert dashboard.scaled == [(path, {"target_num_replicas": 0})]


async def test_an_unchanged_value_is_not_written() -> None:
    dashboard = Dashboard(effective={"user_config": {"expert_map": 1}})
    await change(dashboard, 1)
    assert dashboard.puts == []


async def test_a_config_that_differs_from_the_expected_one_is_not_written() -> None:
    dashboard = Dashboard(effective={"user_config": {"clock": 3}})
    with pytest.raises(ActuationError, match="changed meanwhile"):
        await change(dashboard, 1, expected={"clock": 2})
    assert dashboard.puts == []
    await change(dashboard, 1, expected={"clock": 3})
    assert len(dashboard.puts) == 1


@pytest.mark.parametrize(
    ("declared", "reason"),
    [
        (None, "deployed by code"),
        ({"name": "chat", "runtime_env": {"env_vars": {"KEY": "<redacted>"}}}, "Ray hides parts"),
        ({"name": "chat", "runtime_env": {"pip": ["x"]}}, "must list 'on-h100'"),
    ],
    ids=["imperative", "redacted", "newly-listed"],
)
async def test_a_config_that_cannot_be_written_back_completely_is_refused(declared: Any, reason: str) -> None:
    dashboard = Dashboard(declared=declared)
    with pytest.raises(ActuationError, match=reason):
        await change(dashboard, 1)
    assert dashboard.puts == []


async def test_the_error_for_a_missing_deployment_or_application_lists_the_existing_ones() -> None:
    with pytest.raises(ActuationError, match="no deployment 'nowhere'; it has: on-h100"):
        await change(Dashboard(), 1, application="chat", deployment="nowhere")
    with pytest.raises(ActuationError, match="no application 'nowhere'; it has: by-code, chat, other"):
        await change(Dashboard(), 1, application="nowhere", deployment="x")


async def test_reads_are_retried_while_the_dashboard_is_not_ready() -> None:
    dashboard = Dashboard(down=ATTEMPTS - 1)
    await change(dashboard, 1)
    assert len(dashboard.puts) == 1
    with pytest.raises(UnreachableError, match="503"):
        await change(Dashboard(down=ATTEMPTS), 1)


async def test_a_failed_write_is_not_retried() -> None:
    """The config that was read may be stale; the next reconcile reads it again."""
    dashboard = Dashboard(puts_fail=True)
    with pytest.raises(UnreachableError, match="503"):
        await change(dashboard, 1)
    assert len(dashboard.puts) == 1
