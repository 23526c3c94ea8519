"""A Serve application of replica agents behind Serve's REST interface and an ingress with their status."""

import json
from dataclasses import dataclass, field
from typing import Any

import httpx

from fleetwright.expert_rollout.messages import KEY
from tests.deploy.expert_rollout.replica_group import ReplicaGroup

DASHBOARD, INGRESS = "ray-head", "ingress"


@dataclass
class Served:
    """One application; each deployment is a replica group.  `puts` counts writes."""

    rows: dict[str, ReplicaGroup]
    puts: int = 0
    ingress_answers: int | None = None  # status of every response, if set
    scaled: list[tuple[str, int]] = field(default_factory=list)

    @classmethod
    async def of(cls, **replicas: int) -> "Served":
        found = cls({name: ReplicaGroup(requested=count) for name, count in replicas.items()})
        for group in found.rows.values():
            await group.fill()
        return found

    @property
    def http(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=httpx.MockTransport(self.answer))

    @property
    def commands(self) -> dict[str, Any]:
        return {name: group.config.get(KEY) for name, group in self.rows.items()}

    async def settle(self) -> None:
        """Deliver all commands and finish their loads."""
        for group in self.rows.values():
            await group.fill()
            for name in list(group.replicas):
                await group.deliver(name)
                await group.finish(name)

    def answer(self, request: httpx.Request) -> httpx.Response:
        if request.url.host == INGRESS:
            return self._report(request.url.params["deployment"])
        if request.method == "PUT":
            return self._declare(json.loads(request.content))
        if request.method == "POST":
            name = request.url.path.split("/")[-2]
            self.scaled.append((name, json.loads(request.content)["target_num_replicas"]))
            return httpx.Response(200, json={"message": "ok"})
        return httpx.Response(200, json=self._details())

    def _report(self, deployment: str) -> httpx.Response:
        if self.ingress_answers is not None:
            return httpx.Response(self.ingress_answers, text="no")
        group = self.rows[deployment]
        return httpx.Response(200, json={"replicas": [replica.agent.status() for replica in group.replicas.values()]})

    def _declare(self, body: dict[str, Any]) -> httpx.Response:
        self.puts += 1
        (application,) = body["applications"]
        for entry in application["deployments"]:
            self.rows[entry["name"]].config = entry["user_config"]
        return httpx.Response(200)

    def _details(self) -> dict[str, Any]:
        declared = {
            "name": "chat",
            "import_path": "m:app",
            "deployments": [{"name": name, "user_config": group.config} for name, group in self.rows.items()],
        }
        application = {
            "name": "chat",
            "status": "RUNNING",
            "external_scaler_enabled": True,
            "deployed_app_config": declared,
            "deployments": {
                name: {
                    "target_num_replicas": group.requested,
                    "deployment_config": {"user_config": group.config},
                    "replicas": [{"replica_id": replica, "state": "RUNNING"} for replica in group.replicas],
                }
                for name, group in self.rows.items()
            },
        }
        return {"target_capacity": None, "applications": {"chat": application}}
