"""HTTPS: a renewed certificate is served without a restart, and clients may need one too."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from api.cli.serve.tls import keep_certificate, tls_options
from api.server import Settings
from tests.testbed.certificates import Authority, KeyPair
from tests.testbed.processes import LOOPBACK, free_ports
from tests.testbed.waiting import PATIENCE_S

pytestmark = pytest.mark.anyio


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.create(tmp_path)


def issue(authority: Authority, name: str) -> KeyPair:
    return authority.issue(name, common_name="fleetwright", hosts=[LOOPBACK])


def settings_of(pair: KeyPair, **more: Any) -> Settings:
    return Settings(tls_cert_file=pair.cert_path, tls_key_file=pair.key_path, **more)


@asynccontextmanager
async def serving(settings: Settings) -> AsyncIterator[int]:
    (port,) = free_ports(1)
    app = Starlette(routes=[Route("/", lambda _request: PlainTextResponse("hello"))])
    config = uvicorn.Config(app, host=LOOPBACK, port=port, log_config=None, **tls_options(settings))
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined] # the test run keeps its own handlers
    serving_task = asyncio.create_task(server.serve())
    async with asyncio.timeout(PATIENCE_S):
        while not server.started:
            await asyncio.sleep(0.01)
    keeping = asyncio.create_task(keep_certificate(config, settings, poll_s=0.02))
    yield port
    keeping.cancel()
    server.should_exit = True
    await serving_task


async def serial_number(port: int, authority: Authority, client: KeyPair | None = None) -> str:
    """The serial number of the certificate of a new connection."""
    context = ssl.create_default_context(cafile=authority.cert_path)
    if client is not None:
        context.load_cert_chain(client.cert_path, client.key_path)
    reader, writer = await asyncio.open_connection(LOOPBACK, port, ssl=context)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    answer = await reader.read()
    found: dict[str, Any] = writer.get_extra_info("peercert")
    writer.close()
    if b"hello" not in answer:
        raise ConnectionError("the server has closed the connection")
    return str(found["serialNumber"])


async def test_a_renewed_certificate_is_served_without_a_restart(authority: Authority) -> None:
    served = issue(authority, "server")
    async with serving(settings_of(served)) as port:
        first = await serial_number(port, authority)
        renewed = issue(authority, "renewed")
        served.cert_path.write_bytes(renewed.cert_path.read_bytes())
        await asyncio.sleep(0.2)
        assert await serial_number(port, authority) == first, "certificate and key do not fit together yet"
        served.key_path.write_bytes(renewed.key_path.read_bytes())
        async with asyncio.timeout(PATIENCE_S):
            while await serial_number(port, authority) == first:
                await asyncio.sleep(0.02)
        served.cert_path.unlink()
        await asyncio.sleep(0.1)
        assert await serial_number(port, authority) != first


async def test_clients_need_a_certificate_where_an_authority_is_set(authority: Authority) -> None:
    settings = settings_of(issue(authority, "server"), tls_client_ca_file=authority.cert_path)
    async with serving(settings) as port:
        assert await serial_number(port, authority, authority.issue("client", common_name="me"))
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await serial_number(port, authority)


@pytest.mark.parametrize("given", [{"tls_cert_file": "a"}, {"tls_key_file": "a"}, {"tls_client_ca_file": "a"}], ids=str)
def test_incomplete_settings_are_refused(given: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match=r"give both or neither|without tls_cert_file"):
        Settings(**given)  # type: ignore[arg-type] # as the environment gives them
