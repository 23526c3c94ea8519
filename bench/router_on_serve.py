"""What the router adds to a request as the ingress of an application of Ray Serve.

A local Ray cluster, its HTTP proxy, and three applications around the engine of `router`: the engine alone, the engine
behind an ingress that only passes on, and engines behind the router.  So many requests a second go to one at a time, in
turns of a few seconds, so that what the machine does meanwhile is spread over all.  "added" is the difference of
quantiles from the engine alone: the proxy's hop is in both, the ingress's hop to the engine is added by any ingress,
and the rest is the router's.  CPU time is that of the ingress's process, per request.
"""

import asyncio
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import httpx
import numpy as np

from bench.harness import Row
from bench.router import BODY, STREAM, WARM_UP_S, WEIGHTS, Served, cpu_s, load, off, table
from deploy.router.settings import SERVE_NAME, RouterConfig
from tests.testbed.processes import LOOPBACK
from tests.testbed.ray_cluster import check_machine, running_ray_cluster
from tests.testbed.ray_serve import declared_applications
from tests.testbed.waiting import wait_for

TURN_S, TURNS = 3, 4
RATES_RPS: Final = (25, 50, 100, 200)  # the rate that Serve itself sustains is part of the result
INGRESSES: Final = {"direct": "Direct", "passed": "Passing", "routed": SERVE_NAME}


def run() -> list[Row]:
    check_machine()
    with (
        tempfile.TemporaryDirectory() as folder,
        running_ray_cluster([], log_dir=Path(folder)) as cluster,
        declared_applications(cluster, [_application(name) for name in INGRESSES]),
    ):
        urls = {name: f"http://{LOOPBACK}:{cluster.serve_port}/{name}" for name in INGRESSES}
        for url in urls.values():
            wait_for(lambda url=url: _responds(url), what=f"response of {url}")  # type: ignore[misc] # of a loop's variable
        rows = [asyncio.run(_in_turns("document", BODY, urls, rate_rps=rate_rps)) for rate_rps in RATES_RPS]
        return [*rows, asyncio.run(_in_turns("stream", STREAM, urls, rate_rps=RATES_RPS[0]))]


async def _in_turns(what: str, body: bytes, urls: Mapping[str, str], *, rate_rps: int) -> dict[str, Any]:
    served: dict[str, list[Served]] = {name: [] for name in urls}
    spent_s = dict.fromkeys(urls, 0.0)
    pids = {name: _pid_of(f"ray::ServeReplica:{name}:{INGRESSES[name]}") for name in urls}
    for url in urls.values():
        await load((body,), (url,), seconds=WARM_UP_S, rate_rps=rate_rps)
    for _turn in range(TURNS):
        for name, url in urls.items():
            before_s = cpu_s(pids[name])
            served[name] += (await load((body,), (url,), seconds=TURN_S, rate_rps=rate_rps))[url]
            spent_s[name] += cpu_s(pids[name]) - before_s
    sent = rate_rps * TURN_S * TURNS
    row: dict[str, Any] = {"case": what, "requests": sent, "rate_rps": rate_rps}
    row["lost"] = sum(sent - len(found) for found in served.values())
    row["split_error"] = off(served["routed"], WEIGHTS)
    for q in (50, 99):
        took_ms = {name: _quantile_ms(found, q) for name, found in served.items()}
        row |= {f"{name}_p{q}_ms": found for name, found in took_ms.items()}
        row |= {f"added_{name}_p{q}_ms": took_ms[name] - took_ms["direct"] for name in ("passed", "routed")}
    cpu_ms = {f"{name}_cpu_ms": spent_s[name] / sent * 1e3 for name in ("passed", "routed")}
    return row | cpu_ms | {"load_average": os.getloadavg()[0]}


def _quantile_ms(served: list[Served], q: int) -> float:
    return float(np.quantile([each.took_s for each in served], q / 100)) * 1e3


def _application(name: str) -> dict[str, Any]:
    described = {"name": name, "route_prefix": f"/{name}", "import_path": f"bench.router_serve_app:{name}"}
    if name != "routed":
        return described
    config = RouterConfig(table=table()).model_dump(mode="json")
    return described | {"deployments": [{"name": SERVE_NAME, "user_config": config}]}


def _responds(url: str) -> bool:
    """The router counts who runs once a second."""
    return httpx.post(f"{url}/v1/chat/completions", content=BODY, timeout=10.0, trust_env=False).is_success


def _pid_of(title: str) -> int:
    """Of the one replica that Ray calls so; a call in progress stands behind the name."""
    found = [
        int(process.name)
        for process in Path("/proc").glob("[0-9]*")
        if (process / "cmdline").exists()
        and (process / "cmdline").read_bytes().decode(errors="replace").startswith(title)
    ]
    (pid,) = found
    return pid
