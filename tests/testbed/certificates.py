"""Issues certificates for one test run from its own authority, all on P-256 keys, valid for a week."""

import datetime as dt
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME: Final = dt.timedelta(days=7)
CLOCK_SKEW: Final = dt.timedelta(hours=1)


@dataclass(frozen=True, kw_only=True)
class KeyPair:
    """Names the PEM files of a certificate and its private key."""

    cert_path: Path
    key_path: Path


@dataclass(frozen=True, kw_only=True)
class Authority:
    """Is a certificate authority that keeps its files in one directory."""

    directory: Path
    cert: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def create(cls, directory: Path) -> Self:
        directory.mkdir(parents=True, exist_ok=True)
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name("testbed-authority", ())
        cert = (
            _builder(subject=name, issuer=name, key=key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(signs_certificates=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        authority = cls(directory=directory, cert=cert, key=key)
        authority.cert_path.write_bytes(cert.public_bytes(serialization.Encoding.PEM))
        return authority

    @property
    def cert_path(self) -> Path:
        return self.directory / "ca.crt"

    def issue(
        self, file_name: str, *, common_name: str, groups: Sequence[str] = (), hosts: Sequence[str] = ()
    ) -> KeyPair:
        """Issue a certificate to `common_name`: for a server where `hosts` are given, else for a client in `groups`."""
        key = ec.generate_private_key(ec.SECP256R1())
        purpose = ExtendedKeyUsageOID.SERVER_AUTH if hosts else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = (
            _builder(subject=_name(common_name, groups), issuer=self.cert.subject, key=key)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False)
        )
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False
            )
        cert_path = self.directory / f"{file_name}.crt"
        cert_path.write_bytes(builder.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        return KeyPair(cert_path=cert_path, key_path=write_private_key(self.directory / f"{file_name}.key", key))


def signing_key(directory: Path, file_name: str) -> KeyPair:
    """Create a bare key pair, such as the one that signs service-account tokens; `cert_path` holds the public key."""
    key = ec.generate_private_key(ec.SECP256R1())
    public_path = directory / f"{file_name}.pub"
    public_path.write_bytes(
        key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    return KeyPair(cert_path=public_path, key_path=write_private_key(directory / f"{file_name}.key", key))


def write_private_key(path: Path, key: ec.EllipticCurvePrivateKey) -> Path:
    """Write `key` with read permission for its owner only."""
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return path


def _builder(*, subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + LIFETIME)
    )


def _name(common_name: str, groups: Sequence[str]) -> x509.Name:
    # Kubernetes reads the user from the common name and its groups from the organisations.
    organisations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*organisations, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
