"""Credentials in files: a bearer token, and mutual TLS with the authority of the servers that a client accepts."""

import ssl
from pathlib import Path

from fleet.documents import Frozen
from fleet.errors import FleetwrightError
from fleetwright.token_file import read_token


class CertificateError(FleetwrightError):
    """A certificate, its key or an authority cannot be used."""


class AgentTls(Frozen):
    """Mutual TLS with the agents."""

    authority: Path  # of the agents' certificates
    certificate: Path  # of the guard
    key: Path


def trust_of(tls: AgentTls | None) -> ssl.SSLContext:
    """Build the context for all connections; raise CertificateError.

    With `tls` only servers of that authority are accepted, else those of the machine's authorities.  Loading
    authorities is slow, so build one context for all connections.
    """
    if tls is None:
        return ssl.create_default_context()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(tls.authority)
        context.load_cert_chain(tls.certificate, tls.key)
    except OSError as error:  # includes ssl.SSLError
        files = ", ".join(str(path) for path in (tls.authority, tls.certificate, tls.key))
        raise CertificateError(f"agent_tls: {files}: {error.strerror or error}") from error
    return context


class TokenFileError(FleetwrightError):
    """The token file cannot be used."""


def read_token_file(path: Path) -> str:
    """Return the token without the line end."""
    try:
        return read_token(path)
    except ValueError as error:
        raise TokenFileError(str(error)) from error
