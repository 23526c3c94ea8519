"""The Ray cluster of the demo: a temporary one on this machine, or one that runs already."""

import asyncio
import json
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from deploy.emulator.local_ray import BOOTSTRAP_CONFIG, LOOPBACK, START_S, environment
from fleet.errors import FleetwrightError

ACCELERATOR_LABEL = "ray.io/accelerator-type"
APPLICATIONS = "api/serve/applications/"
SERVE_PORT = 8000  # Serve's default port
END_S = 60.0
POLL_S = 0.25
LOG_LINES = 5


class SandboxError(FleetwrightError):
    """The Ray cluster does not start, or must not be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """A Serve instance without other applications."""

    http: httpx.AsyncClient
    dashboard_url: str
    serve_port: int

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.serve_port}"

    @asynccontextmanager
    async def deployed(self, application: dict[str, Any], *, patience_s: float) -> AsyncIterator[None]:
        if running := sorted(await self._applications()):
            raise SandboxError(f"Serve on {self.dashboard_url} runs {', '.join(running)}; allowed: nothing")
        try:
            await self._declare([application], patience_s=patience_s)
            await wait_until(
                lambda: self._runs(application["name"]), description="the workers to run", patience_s=patience_s
            )
            yield
        finally:
            await self._declare([], patience_s=END_S)
            await wait_until(self._is_empty, description="the workers to stop", patience_s=END_S)

    async def _applications(self) -> dict[str, Any]:
        try:
            response = await self.http.get(f"{self.dashboard_url}/{APPLICATIONS}")
            found: dict[str, Any] = response.raise_for_status().json()["applications"]
        except (httpx.HTTPError, ValueError, KeyError) as error:
            raise SandboxError(f"{self.dashboard_url} does not respond as Ray Serve does: {error}") from error
        return found

    async def _declare(self, applications: Sequence[dict[str, Any]], *, patience_s: float) -> None:
        """Declare the applications; a loaded head returns 5xx for a while after its start."""
        wanted = {
            "proxy_location": "HeadOnly",
            "http_options": {"host": LOOPBACK, "port": self.serve_port},
            "applications": list(applications),
        }

        async def taken() -> bool:
            try:
                response = await self.http.put(f"{self.dashboard_url}/{APPLICATIONS}", json=wanted)
            except httpx.HTTPError:
                return False
            if response.is_client_error:
                raise SandboxError(f"Serve refuses the application: {response.text[:500]}")
            return bool(response.is_success)

        await wait_until(taken, description="Serve to take the application", patience_s=patience_s)

    async def _runs(self, name: str) -> bool:
        found = (await self._applications()).get(name, {})
        if found.get("status") == "DEPLOY_FAILED":
            raise SandboxError(f"Serve could not run {name}: {found.get('message')}")
        return bool(found.get("status") == "RUNNING")

    async def _is_empty(self) -> bool:
        return not await self._applications()


@asynccontextmanager
async def local_sandbox(accelerators: Sequence[str], *, gpus: int) -> AsyncIterator[Sandbox]:
    """Yield a temporary cluster: a head, and a node per type with GPUs that only Ray counts."""
    scratch = Path(tempfile.mkdtemp(prefix="fwt-"))  # short: Ray keeps sockets below it; their paths have a limit
    metrics_port, serve_port = _free_ports(2)
    (scratch / BOOTSTRAP_CONFIG).write_text("{}")
    nodes, ready, log = scratch / "nodes.json", scratch / "ready.json", scratch / "log"
    nodes.write_text(json.dumps([_node("head"), *(_node(name, gpus=gpus) for name in accelerators)]))
    with log.open("wb") as output:
        holder = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "deploy.emulator.local_ray", str(nodes), str(ready)),
            stdin=asyncio.subprocess.PIPE,
            stdout=output,
            stderr=output,
            env=environment(scratch, metrics_port=metrics_port),
            start_new_session=True,
        )
    try:
        await wait_until(lambda: _is_up(holder, ready, log), description="Ray to start", patience_s=START_S)
        facts = json.loads(ready.read_text())
        async with httpx.AsyncClient(trust_env=False, timeout=30.0) as http:
            yield Sandbox(http=http, dashboard_url=facts["dashboard_url"], serve_port=serve_port)
    finally:
        if holder.stdin is not None:
            holder.stdin.close()
        await holder.wait()  # the process removes the folder, even where this one is killed


@asynccontextmanager
async def existing_sandbox(dashboard_url: str) -> AsyncIterator[Sandbox]:
    async with httpx.AsyncClient(trust_env=False, timeout=30.0) as http:
        url = dashboard_url.rstrip("/")
        try:
            details = (await http.get(f"{url}/{APPLICATIONS}")).raise_for_status().json()
        except (httpx.HTTPError, ValueError) as error:
            raise SandboxError(f"{dashboard_url} does not respond as a Ray dashboard does: {error}") from error
        port = (details.get("http_options") or {}).get("port", SERVE_PORT)
        yield Sandbox(http=http, dashboard_url=url, serve_port=port)


async def wait_until(condition: Callable[[], Awaitable[bool]], *, description: str, patience_s: float) -> None:
    try:
        async with asyncio.timeout(patience_s):
            while True:
                if await condition():
                    return
                await asyncio.sleep(POLL_S)
    except TimeoutError as error:
        raise SandboxError(f"waited {patience_s:g} s for {description}") from error


async def _is_up(holder: asyncio.subprocess.Process, ready: Path, log: Path) -> bool:
    if holder.returncode is not None:
        raise SandboxError(f"Ray did not start: {_last_lines(log) or 'no output'}")
    return await asyncio.to_thread(ready.exists)


def _last_lines(log: Path) -> str:
    return " / ".join(log.read_text(errors="replace").splitlines()[-LOG_LINES:])


def _node(name: str, *, gpus: int = 0) -> dict[str, Any]:
    labels = {ACCELERATOR_LABEL: name} if gpus else {}
    return {"node_name": name, "num_cpus": 4, "num_gpus": gpus, "labels": labels}


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server((LOOPBACK, 0)) for _ in range(count)]
    ports = [found.getsockname()[1] for found in sockets]
    for found in sockets:
        found.close()
    return ports
