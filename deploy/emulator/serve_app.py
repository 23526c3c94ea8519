"""A Ray Serve application of emulated workers: one deployment per GPU type, on nodes of its type, behind the router.

    import_path: deploy.emulator.serve_app:build
    args: {"pools": {"on-h100": {"gpu": "H100-SXM"}, "on-l4": {"gpu": "L4"}}, "time_scale": 20}

`user_config` of a pool's deployment is a `WorkerConfig`: its clock level and its expert map.  Serve passes a new one to
the running replicas without a restart.  Unknown keys are ignored.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict
from typing import Annotated, Any

import structlog
from pydantic import BaseModel, ConfigDict, Field
from ray import serve

from deploy.emulator.openai_protocol import JSON, METER_PATH, Headers
from deploy.emulator.openai_worker import OpenAIWorker, Part
from deploy.emulator.ray_sandbox import ACCELERATOR_LABEL
from deploy.emulator.worker import MIN_CLOCK, WorkerLoop, WorkerSpec
from deploy.router.serve_app import behind_router
from deploy.router.settings import RouterSettings
from fleet.documents import Frozen
from power.controls import FULL_CLOCK

METER_NAME = "Meter"  # the deployment
REPORT_EVERY_S = 0.5
MAX_AT_ONCE = 100_000  # requests in one replica: the engine has the queue, not Serve
LITTLE_CPU = 0.1
DRAIN_S = 600.0  # time of a replica that stops to finish its responses
SHUTDOWN_POLL_S = 0.1  # until an idle replica stops

log = structlog.get_logger()


class WorkerConfig(BaseModel):
    """The configuration that may change at runtime."""

    model_config = ConfigDict(extra="ignore")

    clock: Annotated[float, Field(ge=MIN_CLOCK, le=FULL_CLOCK)] = FULL_CLOCK
    expert_map: Any = None  # stored and reported only: an emulated worker has no experts


class PoolSpec(WorkerSpec):
    """A deployment: emulated workers and the nodes that they run on."""

    accelerator: str | None = Field(
        default=None, description="Accelerator label of the nodes; absent: that of the catalogue."
    )
    replicas: int = Field(default=1, ge=1, le=10_000, description="Initial replicas; Serve cannot start with none.")

    @property
    def label(self) -> str | None:
        return self.accelerator or self.board.ray_accelerator


class AppSpec(Frozen):
    """Arguments of `build`."""

    pools: dict[str, dict[str, Any]] = Field(min_length=1, max_length=100, description="Deployment -> PoolSpec.")
    time_scale: float = Field(default=1.0, gt=0, le=10_000, description="Of pools without one of their own.")
    meter: bool = Field(default=False, description="Whether GET /v1/emulator returns the power of each replica.")
    router: dict[str, Any] = Field(default_factory=dict, description="RouterSettings.")


class EmulatedReplica:
    def __init__(self, spec: Mapping[str, Any], meter: Any) -> None:
        self._spec = WorkerSpec.model_validate(spec)
        self._loop = WorkerLoop(spec=self._spec)
        self._config = WorkerConfig()
        self._meter = meter
        self._id = serve.get_replica_context().replica_id.unique_id
        self._openai = OpenAIWorker(self._loop, model=self._spec.model, timing=self._timing())
        self._reporting: asyncio.Task[None] | None = None

    async def reconfigure(self, config: Mapping[str, Any]) -> None:
        self._config = WorkerConfig.model_validate(config)
        self._loop.set_clock(self._config.clock)
        self._openai.timing = self._timing()
        if self._meter is not None and self._reporting is None:
            self._reporting = asyncio.create_task(self._report())

    async def answer_openai(self, method: str, target: str, _headers: Headers, body: bytes) -> AsyncIterator[Part]:
        """Yield status and headers, then the body's parts; the router calls this method."""
        path = target.partition("?")[0].rstrip("/")
        if method == "GET" and path == METER_PATH and self._meter is not None:
            reports = await self._meter.read.remote()
            yield 200, [JSON]
            yield json.dumps(reports).encode()
            return
        async for part in self._openai.answer(method, target, body):
            yield part

    def _timing(self) -> dict[str, Any]:
        config = self._config
        return {"replica": self._id, "gpu": self._spec.gpu, "clock": config.clock, "expert_map": config.expert_map}

    async def _report(self) -> None:
        while True:
            try:
                await self._meter.put.remote(self._id, asdict(self._loop.report()) | {"gpu": self._spec.gpu})
            except Exception:
                log.exception("report_failed")
            await asyncio.sleep(REPORT_EVERY_S)


class Meter:
    def __init__(self) -> None:
        self._last: dict[str, dict[str, Any]] = {}

    def put(self, replica: str, report: dict[str, Any]) -> None:
        self._last[replica] = report

    def read(self) -> dict[str, dict[str, Any]]:
        return self._last


def build(args: Mapping[str, Any]) -> Any:
    spec = AppSpec.model_validate(args)
    little = {"num_cpus": LITTLE_CPU}
    meter = serve.deployment(Meter, name=METER_NAME, ray_actor_options=little).bind() if spec.meter else None
    engines = {name: _deployment(name, pool, spec, meter) for name, pool in spec.pools.items()}
    return behind_router(
        engines,
        settings=RouterSettings.model_validate(spec.router),
        ray_actor_options=little,
        graceful_shutdown_wait_loop_s=SHUTDOWN_POLL_S,
    )


def _deployment(name: str, given: Mapping[str, Any], app: AppSpec, meter: Any) -> Any:
    pool = PoolSpec.model_validate({"time_scale": app.time_scale} | dict(given))
    selector = {} if pool.label is None else {"label_selector": {ACCELERATOR_LABEL: pool.label}}
    worker = pool.model_dump(include=set(WorkerSpec.model_fields))
    return serve.deployment(
        EmulatedReplica,
        name=name,
        num_replicas=pool.replicas,
        user_config=WorkerConfig().model_dump(),
        max_ongoing_requests=MAX_AT_ONCE,
        ray_actor_options={"num_cpus": LITTLE_CPU, "num_gpus": pool.gpus} | selector,
        graceful_shutdown_wait_loop_s=SHUTDOWN_POLL_S,
        graceful_shutdown_timeout_s=DRAIN_S,
    ).bind(worker, meter)
