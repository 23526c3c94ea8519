"""Opens listening sockets, and reads the secrets that protect them."""

import ipaddress
import socket
import ssl
from pathlib import Path
from typing import Annotated

import typer

from api.cli.common.errors import InputError, input_errors
from deploy.common.credentials import TokenFileError, read_token_file
from deploy.common.http_server import ServerTls

HostOption = Annotated[str, typer.Option(metavar="HOST", help="Address to listen on.")]

TlsCertOption = Annotated[
    Path | None, typer.Option("--tls-cert", metavar="FILE", help="Certificate for HTTPS.", show_default="none: HTTP")
]
TlsKeyOption = Annotated[Path | None, typer.Option("--tls-key", metavar="FILE", help="Its key.", show_default="none")]


def listen(host: str, port: int) -> socket.socket:
    """Return a bound socket, or fail with the reason."""
    listener: socket.socket | None = None
    try:
        family, kind, protocol, _name, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        if listener is not None:
            listener.close()
        raise InputError(f"cannot listen on {host} port {port}: {error.strerror}") from error
    return listener


def server_tls(certificate: Path | None, key: Path | None) -> ServerTls | None:
    """Require both files or none, and check them before anything starts."""
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise InputError("--tls-cert and --tls-key: expected both or neither")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    except OSError as error:
        raise InputError(f"--tls-cert, --tls-key: {error.strerror or error}") from error
    return ServerTls(certificate, key)


def scheme_of(tls: ServerTls | None) -> str:
    return "http" if tls is None else "https"


def read_secret(path: Path | None) -> str | None:
    with input_errors(TokenFileError):
        return read_token_file(path) if path else None


def require_loopback_or_token(listener: socket.socket, *, host: str, token: str | None) -> None:
    """Require a secret unless only this machine can connect."""
    address = listener.getsockname()[0].partition("%")[0]
    if token is None and not ipaddress.ip_address(address).is_loopback:
        listener.close()
        message = f"--host {host}: needs --token-file too, or whoever reaches this port could slow the node"
        raise InputError(message)
