"""Opens listening sockets, and reads the secrets that protect them."""

import ipaddress
import socket
from pathlib import Path
from typing import Annotated

import typer

from api.cli.common.errors import InputError, input_errors
from deploy.common.credentials import TokenFileError, read_token_file

HostOption = Annotated[str, typer.Option(metavar="HOST", help="Address to listen on.")]


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
