"""Whom the guard believes to be an agent, and what it shows for itself: mutual TLS, where its file says so."""

import ssl

from deploy.power_guard.config import AgentTls
from fleet.errors import FleetwrightError


class CertificateError(FleetwrightError):
    """A certificate, its key or an authority cannot be used."""


def trust_of(tls: AgentTls | None) -> ssl.SSLContext:
    """Only servers of that authority, and the guard's own certificate; else the authorities of this machine.

    Raises CertificateError.  Made once for all connections: reading authorities takes longer than everything else.
    """
    if tls is None:
        return ssl.create_default_context()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(tls.authority)
        context.load_cert_chain(tls.certificate, tls.key)
    except OSError as error:  # ssl's own are such too
        files = ", ".join(str(path) for path in (tls.authority, tls.certificate, tls.key))
        raise CertificateError(f"agent_tls: {files}: {error.strerror or error}") from error
    return context
