"""A fleet of emulated engines as a process, with an address to control it and to send requests to.

    python -m deploy.emulator.fleet_server fleet.yaml --port 0

    time_scale: 10
    objectives: {ttft_s: 2.0, tpot_s: 0.1}
    options:
      h100: {gpu: H100-SXM, replicas: 2, warm_up_s: 120}
      l4: {gpu: L4, engine: sglang, replicas: 0, warm_up_s: 60}

It writes `{"url": ...}` to standard output.  Paths of that address:

| path | |
|---|---|
| `POST /v1/completions`, `/v1/chat/completions` | answered by the ready replica with the fewest requests |
| `GET /fleet` | model time, and the options with their replicas |
| `PUT /fleet/options/{option}` | `{"replicas": 3, "weight": 2.0}`: `fleet.Scale`; a removed replica is drained |
| `POST /fleet/replicas/{replica}/restart` | kill the process; it starts again at its port after the warm-up |
| `GET /fleet/targets` | the listening replicas, for Prometheus' `http_sd_configs` |
| `GET /fleet/counts` | outcomes of the requests since the start, and model seconds of replicas by option |
"""

import argparse
import asyncio
import json
import sys
from http import HTTPStatus
from pathlib import Path
from typing import Any

from fastapi import FastAPI, HTTPException
from pydantic import ValidationError
from starlette.types import ASGIApp, Receive, Scope, Send

from deploy.common.shutdown import run_until_sigterm
from deploy.emulator.engine_http import AnswerApp, Listener
from deploy.emulator.fleet import Dispatcher, Fleet, FleetSpec, Option, Replica, Scale
from deploy.emulator.fleet_account import Accounted, Counts
from deploy.emulator.openai_worker import OpenAIWorker
from deploy.emulator.worker import UnavailableError
from fleet.documents import Frozen, parse_document, read_model
from fleet.errors import DocumentError, UnknownNameError

MODEL = "fleet"  # in responses through the dispatcher


class ReplicaStatus(Frozen):
    name: str
    state: str
    url: str | None  # None until it listens
    in_flight: int
    waiting: int


class OptionStatus(Frozen):
    wanted: int
    ready: int
    weight: float
    replica_s: float  # model seconds of all replicas since the start
    replicas: tuple[ReplicaStatus, ...]


class FleetStatus(Frozen):
    now_s: float  # model seconds since the start
    time_scale: float
    options: dict[str, OptionStatus]


class FleetCounts(Frozen):
    now_s: float
    requests: Counts
    replica_s: dict[str, float]


def fleet_app(fleet: Fleet) -> ASGIApp:
    """Return the application of the fleet's address."""
    worker = OpenAIWorker(Accounted(Dispatcher(fleet), fleet.account), model=MODEL)
    requests, control = AnswerApp(worker.answer), _control(fleet)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        chosen: ASGIApp = requests if scope.get("path", "").startswith("/v1/") else control
        await chosen(scope, receive, send)

    return app


def _control(fleet: Fleet) -> FastAPI:
    app = FastAPI(title="Emulated fleet", openapi_url=None)

    @app.get("/fleet")
    async def read() -> FleetStatus:
        return _status(fleet)

    @app.put("/fleet/options/{option}")
    async def scale(option: str, wanted: Scale) -> FleetStatus:
        try:
            fleet.scale(option, wanted)
        except UnknownNameError as error:
            raise HTTPException(HTTPStatus.NOT_FOUND, str(error)) from error
        except ValidationError as error:
            raise HTTPException(HTTPStatus.UNPROCESSABLE_ENTITY, error.errors()[0]["msg"]) from error
        return _status(fleet)

    @app.post("/fleet/replicas/{replica}/restart")
    async def restart(replica: str) -> FleetStatus:
        try:
            await fleet.restart(replica)
        except UnknownNameError as error:
            raise HTTPException(HTTPStatus.NOT_FOUND, str(error)) from error
        except UnavailableError as error:
            raise HTTPException(HTTPStatus.CONFLICT, str(error)) from error
        return _status(fleet)

    @app.get("/fleet/targets")
    async def targets() -> list[dict[str, Any]]:
        return [
            {
                "targets": [replica.listener.url.removeprefix("http://")],
                "labels": {"pod": replica.name, "option": replica.option},
            }
            for replica in fleet.replicas()
            if replica.listener.is_open
        ]

    @app.get("/fleet/counts")
    async def counts() -> FleetCounts:
        replica_s = {name: fleet.replica_s(option) for name, option in fleet.options.items()}
        return FleetCounts(now_s=fleet.now_s, requests=fleet.account.counts(), replica_s=replica_s)

    return app


def _status(fleet: Fleet) -> FleetStatus:
    options = {name: _option(fleet, option) for name, option in fleet.options.items()}
    return FleetStatus(now_s=fleet.now_s, time_scale=fleet.spec.time_scale, options=options)


def _option(fleet: Fleet, option: Option) -> OptionStatus:
    return OptionStatus(
        wanted=option.wanted,
        ready=option.ready,
        weight=option.weight,
        replica_s=fleet.replica_s(option),
        replicas=tuple(map(_replica, option.replicas)),
    )


def _replica(replica: Replica) -> ReplicaStatus:
    state = replica.engine.loop.state()
    return ReplicaStatus(
        name=replica.name,
        state=replica.state,
        url=replica.listener.url if replica.listener.is_open else None,
        in_flight=state.running + state.waiting,
        waiting=state.waiting,
    )


async def serve(spec: FleetSpec, *, port: int) -> None:
    """Serve until cancelled."""
    fleet = Fleet(spec)
    listener = Listener(fleet_app(fleet), port)
    fleet.open()
    listener.open()
    sys.stdout.write(json.dumps({"url": listener.url}) + "\n")
    sys.stdout.flush()
    try:
        await asyncio.Event().wait()
    finally:
        await fleet.close()
        await listener.close()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m deploy.emulator.fleet_server")
    parser.add_argument("file", type=Path, help="the fleet, as YAML or JSON")
    parser.add_argument("--port", type=int, default=0, help="on loopback; 0: the system chooses")
    given = parser.parse_args(arguments)
    try:
        spec = read_model(parse_document(given.file.read_text(encoding="utf-8"), name=str(given.file)), FleetSpec)
    except (OSError, DocumentError) as error:
        parser.error(str(error))
    asyncio.run(run_until_sigterm(serve(spec, port=given.port)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
