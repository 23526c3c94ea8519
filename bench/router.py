"""What the router adds to a request, what one decision costs, and how exactly weights are followed.

Three processes on loopback: an engine that answers at once (uvicorn), the router before it (uvicorn too), and the
caller.  200 requests a second go through the router and as many direct to the engine, in turns and whatever the answers
do; "added" is the difference of the quantiles of the two.  CPU time is that of the router's process, per request.
"""

import asyncio
import itertools
import json
import multiprocessing
import os
import socket
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import uvicorn
from prometheus_client import CollectorRegistry

from deploy.router.desk import Arrival, Desk
from deploy.router.instruments import OfProcess
from deploy.router.router import Router
from deploy.router.settings import RouterSettings
from deploy.router.table import CellWeights, Route, RoutingTable

LOOPBACK = "127.0.0.1"
RATE_RPS = 200
SECONDS, WARM_UP_S = 20, 3
TOKENS = 16  # of a streamed answer
DECISIONS = 50_000
BODY = json.dumps(
    {"model": "m", "messages": [{"role": "user", "content": "word " * 400}], "max_tokens": TOKENS}
).encode()
STREAM = BODY[:-1] + b', "stream": true}'
ANSWER = json.dumps(
    {"choices": [{"message": {"content": "x" * 64}}], "usage": {"prompt_tokens": 401, "completion_tokens": TOKENS}}
).encode()
EVENT = b'data: {"choices": [{"delta": {"content": "word "}}]}\n\n'
WEIGHTS = {"a": 0.47, "b": 0.31, "c": 0.22}

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


def run() -> list[dict[str, Any]]:
    """Decisions, then requests as documents and as streams."""
    return [_decisions(), *(_served(what, body) for what, body in (("document", BODY), ("stream", STREAM)))]


def table() -> RoutingTable:
    """Twenty buckets, three deployments."""
    inputs, outputs = (100, 400, 1600, 6400, 25_600), (50, 200, 800, 3200)
    return RoutingTable(
        version="bench",
        input_tokens=inputs,
        output_tokens=outputs,
        share=((0.05,) * 4,) * 5,
        routes={name: Route(replicas=4, most_in_flight=64) for name in WEIGHTS},
        cells=tuple(
            CellWeights(row=row, column=column, weights=WEIGHTS)
            for row, column in itertools.product(range(5), range(4))
        ),
    )


async def engine(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
    """Answers at once."""
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
    await send({"type": "http.response.body", "body": b"data: [DONE]\n\n" if streamed else ANSWER})


def _decisions() -> dict[str, Any]:
    """Arrival, choice and end of a request at the desk; prompts of every size, a hundred in flight."""
    desk, rng, counts = Desk(table()), np.random.default_rng(0), Counter[str | None]()
    arrivals = [Arrival(prompt_bytes=int(size)) for size in rng.integers(10, 100_000, 1000)]
    in_flight = []
    spent_s = time.process_time()
    for at in range(DECISIONS):
        desk.arrive(arrivals[at % 1000], now_s=float(at))
        for ticket in desk.starts(now_s=float(at)):
            in_flight.append(ticket)
            counts[ticket.route] += 1
        if len(in_flight) > 100:
            desk.done(in_flight.pop(0), prompt_tokens=500, output_tokens=100)
    spent_s = time.process_time() - spent_s
    errors = [abs(counts[name] / DECISIONS - weight) for name, weight in WEIGHTS.items()]
    return {
        "what": "decision",
        "requests": DECISIONS,
        "decision_us": spent_s / DECISIONS * 1e6,
        "split_error": max(errors),
    }


def _served(what: str, body: bytes) -> dict[str, Any]:
    with _process(_engine_main) as (engine_url, _), _process(_router_main, engine_url) as (router_url, router_pid):
        return asyncio.run(_paired(what, body, direct=engine_url, routed=router_url, pid=router_pid))


async def _paired(what: str, body: bytes, *, direct: str, routed: str, pid: int) -> dict[str, Any]:
    await load(body, (direct, routed), seconds=WARM_UP_S)
    before_s = cpu_s(pid)
    seconds = await load(body, (direct, routed), seconds=SECONDS)
    spent_s = cpu_s(pid) - before_s
    return {
        "what": what,
        "requests": len(seconds[routed]),
        "rate_rps": RATE_RPS,
        **quantiles_ms({"direct": np.array(seconds[direct]) * 1e3, "routed": np.array(seconds[routed]) * 1e3}),
        "router_cpu_ms": spent_s / len(seconds[routed]) * 1e3,
        "load_average": os.getloadavg()[0],
    }


def quantiles_ms(found: Mapping[str, npt.NDArray[np.float64]]) -> dict[str, float]:
    """Of both ways, and what the router adds to each."""
    said = {f"{name}_p{q}_ms": float(np.quantile(each, q / 100)) for name, each in found.items() for q in (50, 99)}
    return said | {f"added_p{q}_ms": said[f"routed_p{q}_ms"] - said[f"direct_p{q}_ms"] for q in (50, 99)}


async def load(body: bytes, urls: tuple[str, str], *, seconds: float) -> dict[str, list[float]]:
    """`RATE_RPS` each way, in turns, whatever the answers do; how long each took."""
    import aiohttp  # noqa: PLC0415 - an extra

    took: dict[str, list[float]] = {url: [] for url in urls}

    async def one(url: str) -> None:
        started_s = time.perf_counter()
        async with http.post(f"{url}/v1/chat/completions", data=body) as answer:
            await answer.read()
            assert answer.status == 200
        took[url].append(time.perf_counter() - started_s)

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http, asyncio.TaskGroup() as tasks:
        began_s = time.perf_counter()
        for at in range(int(2 * RATE_RPS * seconds)):
            await asyncio.sleep(max(0.0, began_s + at / (2 * RATE_RPS) - time.perf_counter()))
            tasks.create_task(one(urls[at % 2]))
    return took


def cpu_s(pid: int) -> float:
    """Processor time of a process so far, in user and system mode."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:  # noqa: PTH123 - a kernel file
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def _process(main: Callable[..., None], *args: str) -> Iterator[tuple[str, int]]:
    """A server in a process of its own: its address and its id."""
    listener = socket.create_server((LOOPBACK, 0))
    process = multiprocessing.get_context("fork").Process(target=main, args=(listener, *args), daemon=True)
    process.start()
    url = f"http://{LOOPBACK}:{listener.getsockname()[1]}"
    listener.close()
    try:
        yield url, process.pid or 0
    finally:
        process.terminate()
        process.join(10)


def _engine_main(listener: socket.socket) -> None:
    _serve(engine, listener)


def _router_main(listener: socket.socket, engine_url: str) -> None:
    async def serve() -> None:
        from deploy.router.over_http import HttpUpstream  # noqa: PLC0415 - an extra

        upstreams = {name: HttpUpstream(name, [engine_url], silence_s=60.0) for name in WEIGHTS}
        instruments = OfProcess(CollectorRegistry())
        router = Router(table=table(), upstreams=upstreams, settings=RouterSettings(), instruments=instruments)
        await uvicorn.Server(_quiet(router)).serve(sockets=[listener])

    with asyncio.Runner(loop_factory=_quiet(engine).get_loop_factory()) as runner:  # as `uvicorn` itself runs
        runner.run(serve())


def _serve(app: Any, listener: socket.socket) -> None:
    uvicorn.Server(_quiet(app)).run(sockets=[listener])


def _quiet(app: Any) -> uvicorn.Config:
    return uvicorn.Config(app, log_config=None, access_log=False, server_header=False)
