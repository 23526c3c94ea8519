"""The router process: its table is replaced while it runs, and it ends after its last response."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deploy.common.clock import Clock
from deploy.router.process import RouterFile, TableFile, follow
from tests.deploy.router.asgi import Scripted, bed
from tests.deploy.router.engine import Engine
from tests.deploy.router.sockets import LOOPBACK, listening, nobody
from tests.deploy.router.tables import table
from tests.deploy.router.waiting import until
from tests.testbed.waiting import PATIENCE_S

aiohttp = pytest.importorskip("aiohttp", reason="the extra `ray` brings aiohttp")

pytestmark = pytest.mark.anyio

COMMAND = [sys.executable, "-c", "from api.cli.router.run import app; app()"]
CHAT = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 20, "stream": True}


@asynccontextmanager
async def router(folder: Path, engines: dict[str, list[str]]) -> AsyncIterator[tuple[str, asyncio.subprocess.Process]]:
    """Run the router process and yield its URL."""
    port, metrics_port = (nobody().rpartition(":")[2] for _ in range(2))
    config = folder / "router.json"
    config.write_text(json.dumps({"engines": engines, "table_file": str(folder / "table.json")}))
    options = ["--config", str(config), "--port", port, "--metrics-port", metrics_port]
    process = await asyncio.create_subprocess_exec(*COMMAND, *options, stderr=asyncio.subprocess.DEVNULL)
    try:
        yield f"http://{LOOPBACK}:{port}", process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def post(http: Any, url: str, **headers: str) -> tuple[str, bytes]:
    async with http.post(f"{url}/v1/chat/completions", json=CHAT, headers=headers) as answer:
        return answer.headers.get("x-fleetwright-plan", "none"), await answer.read()


async def plan_in_force(http: Any, url: str) -> str:
    try:
        return (await post(http, url))[0]
    except aiohttp.ClientError:
        return "unreachable"


async def test_the_table_is_replaced_at_runtime_and_the_end_waits_for_responses(tmp_path: Path) -> None:
    def put(version: str, name: str) -> None:
        new = tmp_path / "new.json"
        new.write_text(table(version=version, weights={name: 1.0}).model_dump_json())
        new.replace(tmp_path / "table.json")

    put("p1", "a")
    a, b = Engine("a"), Engine("b")
    async with (
        listening(a) as at_a,
        listening(b) as at_b,
        aiohttp.ClientSession() as http,
        router(tmp_path, {"a": [at_a], "b": [at_b]}) as (url, process),
        asyncio.timeout(PATIENCE_S),
    ):
        while await plan_in_force(http, url) != "p1":
            await asyncio.sleep(0.05)
        put("p2", "b")
        while await plan_in_force(http, url) != "p2":
            await asyncio.sleep(0.05)
        gate = tmp_path / "gate"
        last = asyncio.create_task(post(http, url, **{"x-until": str(gate)}))
        await until(lambda: b.in_flight == 1)
        process.send_signal(signal.SIGTERM)
        while await plan_in_force(http, url) != "unreachable":
            await asyncio.sleep(0.05)
        gate.touch()
        assert (await last)[1].endswith(b"data: [DONE]\n\n")
        await process.wait()
    assert a.bodies
    assert b.bodies


async def test_an_unusable_table_is_refused_once_and_the_next_one_is_used(tmp_path: Path) -> None:
    polls = 0

    async def sleep(_seconds: float) -> None:
        nonlocal polls
        polls += 1
        await asyncio.sleep(0)

    path = tmp_path / "table.json"
    path.write_text(table(weights={"a": 1.0}).model_dump_json())
    file, found = TableFile(path), bed(table(weights={"a": 1.0}), {"a": Scripted()})
    file.read()
    following = asyncio.create_task(follow(found.router, file, clock=replace(Clock(), sleep=sleep)))
    for refused, text in enumerate(['{"version": "bad"}', table(weights={"unknown": 1.0}).model_dump_json()], start=1):
        path.write_text(text)
        await until(lambda n=refused: found.counted("table_loads_total", result="refused") == n)  # type: ignore[misc]
    path.unlink()
    polls_before = polls
    await until(lambda: polls > polls_before + 1)
    path.write_text(table(version="p2", weights={"a": 1.0}).model_dump_json())
    await until(lambda: found.router.async_scheduler.scheduler.table.version == "p2")
    assert found.counted("table_loads_total", result="refused") == 2
    following.cancel()


def test_a_file_is_read_again_only_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    path.write_text(table().model_dump_json())
    file = TableFile(path)
    assert file.read() == table()
    assert file.changed() is None
    path.write_text("{")
    with pytest.raises(ValueError, match="JSON"):
        file.changed()
    assert file.changed() is None, "the error is reported once"
    path.write_text(table(version="p2").model_dump_json())
    assert file.changed() == table(version="p2")


@pytest.mark.parametrize(
    ("engines", "message"), [({}, "at least 1"), ({"a": []}, "at least one address"), ({"a": ["ftp://x"]}, "pattern")]
)
def test_engines_without_valid_addresses_are_refused(engines: dict[str, list[str]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RouterFile.model_validate({"engines": engines, "table_file": "t.json"})
