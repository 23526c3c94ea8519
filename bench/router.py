"""Latency that the router adds to a request, and accuracy of the weights.

Three processes on loopback: an engine that responds at once (uvicorn), the router as `fleetwright router` runs it, and
the caller.  200 requests a second go through the router and as many direct to the engine, in turns, open loop; "added"
is the difference of the quantiles.  CPU time is that of the router's process, per request.  In `swap` the table file is
replaced every two seconds under the same load: requests lost, and error of the split of each table.
"""

import asyncio
import itertools
import json
import os
import socket
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import uvicorn
from prometheus_client import CollectorRegistry

from bench.harness import Row, child
from deploy.common.logs import configure_logs
from deploy.router.process import RouterFile, run_router
from deploy.router.table import CellWeights, Route, RoutingTable

LOOPBACK = "127.0.0.1"
RATE_RPS = 200
SECONDS, WARM_UP_S = 20, 3
SWAP_S = 2.0
TOKENS = 16  # of a streamed response
BODY = json.dumps(
    {"model": "m", "messages": [{"role": "user", "content": "word " * 400}], "max_tokens": TOKENS}
).encode()
STREAM = BODY[:-1] + b', "stream": true}'
RESPONSE = json.dumps(
    {"choices": [{"message": {"content": "x" * 64}}], "usage": {"prompt_tokens": 401, "completion_tokens": TOKENS}}
).encode()
EVENT = b'data: {"choices": [{"delta": {"content": "word "}}]}\n\n'
WEIGHTS = {"a": 0.47, "b": 0.31, "c": 0.22}
SWAPPED = ({"a": 0.15, "b": 0.25, "c": 0.6}, {"b": 1.0}, WEIGHTS)

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


def run() -> list[Row]:
    paired = (_served(kind, body) for kind, body in (("document", BODY), ("stream", STREAM)))
    return [*paired, _swapped()]


class Served(NamedTuple):
    took_s: float
    route: str | None
    plan: str | None


def table(weights: Mapping[str, float] = WEIGHTS, *, version: str = "bench") -> RoutingTable:
    inputs, outputs = (100, 400, 1600, 6400, 25_600), (50, 200, 800, 3200)
    return RoutingTable(
        version=version,
        input_tokens=inputs,
        output_tokens=outputs,
        share=((0.05,) * 4,) * 5,
        routes={name: Route(replicas=4, max_in_flight=64) for name in WEIGHTS},
        cells=tuple(
            CellWeights(row=row, column=column, weights=dict(weights))
            for row, column in itertools.product(range(5), range(4))
        ),
    )


async def engine(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
    if scope["type"] != "http":
        return
    body = b""
    while True:
        message = await receive()
        body += message["body"]
        if not message.get("more_body"):
            break
    streamed = body.endswith(b'"stream": true}')
    kind = b"text/event-stream" if streamed else b"application/json"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
    for _ in range(TOKENS if streamed else 0):
        await send({"type": "http.response.body", "body": EVENT, "more_body": True})
        await asyncio.sleep(0)
    await send({"type": "http.response.body", "body": b"data: [DONE]\n\n" if streamed else RESPONSE})


class Bed(NamedTuple):
    direct: str
    routed: str
    pid: int  # of the router
    table_file: Path


@contextmanager
def _bed() -> Iterator[Bed]:
    with TemporaryDirectory() as folder, _process(_engine_main) as (direct, _):
        file = Path(folder) / "table.json"
        file.write_text(table().model_dump_json())
        with _process(_router_main, direct, str(file)) as (routed, pid):
            yield Bed(direct, routed, pid, file)


def _served(kind: str, body: bytes) -> Row:
    with _bed() as bed:
        return asyncio.run(_paired(kind, body, bed))


async def _paired(kind: str, body: bytes, bed: Bed) -> Row:
    urls = (bed.direct, bed.routed)
    await load((body,), urls, seconds=WARM_UP_S)
    before_s = cpu_s(bed.pid)
    served = await load((body,), urls, seconds=SECONDS)
    spent_s = cpu_s(bed.pid) - before_s
    took_ms = {
        name: np.array([each.took_s for each in served[url]]) * 1e3
        for name, url in zip(("direct", "routed"), urls, strict=True)
    }
    routed = served[bed.routed]
    return {
        "case": kind,
        "requests": len(routed),
        "rate_rps": RATE_RPS,
        "lost": RATE_RPS * SECONDS - len(routed),
        "split_error": off(routed, WEIGHTS),
        **_quantiles_ms(took_ms),
        "router_cpu_ms": spent_s / len(routed) * 1e3,
        "load_average": os.getloadavg()[0],
    }


def _swapped() -> Row:
    with _bed() as bed:
        return asyncio.run(_swapped_under_load(bed))


async def _swapped_under_load(bed: Bed) -> Row:
    swaps = itertools.cycle(SWAPPED)
    weights_by: dict[str, Mapping[str, float]] = {"bench": WEIGHTS}

    async def swap() -> None:
        while True:
            await asyncio.sleep(SWAP_S)
            version, weights = f"bench-{len(weights_by)}", next(swaps)
            weights_by[version] = weights
            beside = bed.table_file.with_suffix(".new")
            beside.write_text(table(weights, version=version).model_dump_json())
            beside.replace(bed.table_file)

    await load((BODY,), (bed.routed,), seconds=WARM_UP_S)
    swapping = asyncio.create_task(swap())
    routed = (await load((BODY, STREAM), (bed.routed,), seconds=SECONDS))[bed.routed]
    swapping.cancel()
    by_plan = {plan: [each for each in routed if each.plan == plan] for plan in {each.plan for each in routed}}
    return {
        "case": "swap",
        "requests": len(routed),
        "rate_rps": RATE_RPS,
        "lost": RATE_RPS * SECONDS - len(routed),
        "tables": len(by_plan),
        # The first began in the warm-up, the last may have had a few requests only.
        "split_error": max(
            off(found, weights_by[plan or ""]) for plan, found in by_plan.items() if len(found) >= RATE_RPS
        ),
        "load_average": os.getloadavg()[0],
    }


def off(served: Sequence[Served], weights: Mapping[str, float]) -> float:
    """The largest difference of a route's share from its weight."""
    counts = Counter(each.route for each in served)
    return max(abs(counts[name] / len(served) - weights.get(name, 0.0)) for name in WEIGHTS)


def _quantiles_ms(found: Mapping[str, npt.NDArray[np.float64]]) -> dict[str, float]:
    figures = {f"{name}_p{q}_ms": float(np.quantile(each, q / 100)) for name, each in found.items() for q in (50, 99)}
    return figures | {f"added_p{q}_ms": figures[f"routed_p{q}_ms"] - figures[f"direct_p{q}_ms"] for q in (50, 99)}


async def load(
    bodies: Sequence[bytes], urls: Sequence[str], *, seconds: float, rate_rps: int = RATE_RPS
) -> dict[str, list[Served]]:
    """`rate_rps` each way, in turns, whatever the responses; the complete ones, and how long each took."""
    import aiohttp  # noqa: PLC0415 - an extra

    served: dict[str, list[Served]] = {url: [] for url in urls}

    async def one(url: str, body: bytes) -> None:
        started_s = time.perf_counter()
        try:
            async with http.post(f"{url}/v1/chat/completions", data=body) as response:
                text = await response.read()
        except aiohttp.ClientError:
            return
        if response.status == 200 and (text == RESPONSE or text.endswith(b"data: [DONE]\n\n")):
            route_and_plan = (response.headers.get(f"x-fleetwright-{name}") for name in ("route", "plan"))
            served[url].append(Served(time.perf_counter() - started_s, *route_and_plan))

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http, asyncio.TaskGroup() as tasks:
        began_s = time.perf_counter()
        in_all_rps = len(urls) * rate_rps
        for at in range(int(in_all_rps * seconds)):
            await asyncio.sleep(max(0.0, began_s + at / in_all_rps - time.perf_counter()))
            tasks.create_task(one(urls[at % len(urls)], bodies[at % len(bodies)]))
    return served


def cpu_s(pid: int) -> float:
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:  # noqa: PTH123 - a kernel file
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def _process(main: Callable[..., None], *args: str) -> Iterator[tuple[str, int]]:
    with socket.create_server((LOOPBACK, 0)) as listener, child(main, listener, *args, method="fork") as process:
        yield f"http://{LOOPBACK}:{listener.getsockname()[1]}", process.pid or 0


def _engine_main(listener: socket.socket) -> None:
    _serve(engine, listener)


def _router_main(listener: socket.socket, engine_url: str, table_file: str) -> None:
    async def serve() -> None:
        config = RouterFile(engines=dict.fromkeys(WEIGHTS, (engine_url,)), table_file=Path(table_file))
        await run_router(config, listener, registry=CollectorRegistry())

    configure_logs(level="WARNING")
    with asyncio.Runner(loop_factory=_quiet(engine).get_loop_factory()) as runner:  # as `uvicorn` itself runs
        runner.run(serve())


def _serve(app: Any, listener: socket.socket) -> None:
    uvicorn.Server(_quiet(app)).run(sockets=[listener])


def _quiet(app: Any) -> uvicorn.Config:
    return uvicorn.Config(app, log_config=None, access_log=False, server_header=False)
