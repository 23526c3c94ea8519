"""A double of Ray Serve's REST API, for failures that a healthy Ray cluster does not produce on demand.

Paths, bodies, statuses and texts are those of Ray 2.60.0; `tests/cluster/test_ray_serve_actuator.py` runs the same
actuator against real Ray Serve.
"""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import httpx

DASHBOARD_URL = "http://ray-head:8265"
Interruption = Callable[[httpx.Request], Awaitable[httpx.Response | None]]


@dataclass
class Deployment:
    """A deployment whose replicas start and stop only when the test calls `settle`."""

    requested: int
    running: int
    declared: int | None = None  # in the Serve config; None: the code sets the count
    autoscaled: bool = False
    user_config: dict[str, Any] = field(default_factory=dict)

    def details(self, name: str) -> dict[str, Any]:
        """The details as Serve returns them, with starting and stopping replicas."""
        starting, stopping = max(0, self.requested - self.running), max(0, self.running - self.requested)
        states = ["RUNNING"] * (self.running - stopping) + ["STOPPING"] * stopping + ["STARTING"] * starting
        return {
            "name": name,
            "status": "HEALTHY" if starting == stopping == 0 else "UPDATING",
            "target_num_replicas": self.requested,
            "deployment_config": {"num_replicas": self.declared, "user_config": self.user_config}
            | ({"autoscaling_config": {"min_replicas": 1}} if self.autoscaled else {}),
            "replicas": [{"replica_id": f"{name}#{index}", "state": state} for index, state in enumerate(states)],
        }


@dataclass
class ServeDouble:
    """A Serve API with one application.  `writes` lists every accepted change, in order."""

    deployments: dict[str, Deployment]
    application: str = "chat"
    status: str = "RUNNING"
    message: str = ""
    external_scaler_enabled: bool = True
    table_in_force: str | None = None  # version that the application's router reports; None: no router
    writes: list[tuple[str, int]] = field(default_factory=list)
    requests: list[httpx.Request] = field(default_factory=list)
    interruptions: list[Interruption] = field(default_factory=list)  # the first one handles the next request

    @classmethod
    def running(cls, **replicas: int) -> "ServeDouble":
        """An application whose deployments run the requested number of replicas."""
        return cls(deployments={name: Deployment(requested=count, running=count) for name, count in replicas.items()})

    @property
    def transport(self) -> httpx.MockTransport:
        """A transport that sends every request to this double."""
        return httpx.MockTransport(self.answer)

    @property
    def counts(self) -> dict[str, int]:
        """Running replicas by deployment."""
        return {name: deployment.running for name, deployment in self.deployments.items()}

    def settle(self) -> None:
        """Start every requested replica and remove every other one."""
        for deployment in self.deployments.values():
            deployment.running = deployment.requested

    async def answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        if self.interruptions and (answer := await self.interruptions.pop(0)(request)) is not None:
            return answer
        match request.method, request.url.raw_path.decode().split("/")[1:]:
            case "GET", ["api", "serve", "applications", ""]:
                return httpx.Response(200, json=self._details())
            case "POST", ["api", "v1", "applications", application, "deployments", deployment, "scale"]:
                return self._scale(unquote(application), unquote(deployment), json.loads(request.content))
            case "PUT", ["api", "serve", "applications", ""]:
                return self._declare(json.loads(request.content))
            case "GET", ["fleetwright", "table"] if self.table_in_force is not None:
                return httpx.Response(200, json={"version": self.table_in_force})
            case _:
                return httpx.Response(404, text="404: Not Found")

    @property
    def config(self) -> dict[str, Any]:
        """The application's config as it was declared."""
        deployments = [
            {"name": name, "num_replicas": deployment.declared}
            for name, deployment in self.deployments.items()
            if deployment.declared is not None
        ]
        return {"name": self.application, "import_path": "m:app", "deployments": deployments}

    def _details(self) -> dict[str, Any]:
        application = {
            "name": self.application,
            "status": self.status,
            "message": self.message,
            "external_scaler_enabled": self.external_scaler_enabled,
            "deployed_app_config": self.config,
            "deployments": {name: deployment.details(name) for name, deployment in self.deployments.items()},
        }
        return {"target_capacity": None, "applications": {self.application: application}}

    def _scale(self, application: str, name: str, body: dict[str, int]) -> httpx.Response:
        if application != self.application or name not in self.deployments:
            return httpx.Response(404, json={"error": "Application or Deployment not found"})
        if not self.external_scaler_enabled:
            reason = "Current value: external_scaler_enabled=false."
            return httpx.Response(412, json={"error": f"Cannot update replicas for deployment '{name}'. {reason}"})
        self.deployments[name].requested = body["target_num_replicas"]
        self.writes.append((name, body["target_num_replicas"]))
        message = "Scaling request received. Deployment will get scaled asynchronously."
        return httpx.Response(200, json={"message": message})

    def _declare(self, body: dict[str, Any]) -> httpx.Response:
        """As in Serve, a count equal to the last declared one changes nothing, even after a scaling in between."""
        (application,) = body["applications"]
        for entry in application["deployments"]:
            found = self.deployments[entry["name"]]
            found.user_config = entry.get("user_config", found.user_config)
            if entry.get("num_replicas", found.declared) != found.declared:
                found.requested = found.declared = entry["num_replicas"]
                self.writes.append((entry["name"], entry["num_replicas"]))
        return httpx.Response(200)


def answering(status: int, text: str = "") -> Interruption:
    """An interruption that returns this response instead of Serve's."""

    async def answer(_request: httpx.Request) -> httpx.Response:
        return httpx.Response(status, text=text)

    return answer


def raising(error: type[httpx.TransportError]) -> Interruption:
    """An interruption that fails the connection with this error."""

    async def fail(request: httpx.Request) -> httpx.Response:
        raise error("broken on purpose", request=request)

    return fail
