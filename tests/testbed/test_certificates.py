"""Tests that issued certificates are accepted for their purpose only."""

import datetime as dt
import ipaddress
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509.oid import NameOID
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from tests.testbed.certificates import Authority, KeyPair, signing_key

HERE = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.create(tmp_path / "pki")


def test_a_server_certificate_is_valid_for_its_hosts_only(authority: Authority) -> None:
    pair = authority.issue("serving", common_name="server", hosts=["127.0.0.1", "localhost"])

    for host in (HERE, x509.DNSName("localhost")):
        _policy(authority).build_server_verifier(host).verify(_certificate(pair), [])
    with pytest.raises(VerificationError):
        _policy(authority).build_server_verifier(x509.DNSName("example.invalid")).verify(_certificate(pair), [])


def test_a_certificate_of_another_authority_is_refused(authority: Authority, tmp_path: Path) -> None:
    foreign = Authority.create(tmp_path / "other").issue("serving", common_name="server", hosts=["127.0.0.1"])
    with pytest.raises(VerificationError):
        _policy(authority).build_server_verifier(HERE).verify(_certificate(foreign), [])


def test_a_client_certificate_has_the_user_and_groups_of_kubernetes(authority: Authority) -> None:
    subject = _certificate(authority.issue("admin", common_name="ada", groups=["system:masters", "ops"])).subject

    assert [name.value for name in subject.get_attributes_for_oid(NameOID.COMMON_NAME)] == ["ada"]
    assert {name.value for name in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)} == {
        "system:masters",
        "ops",
    }


def test_a_client_certificate_is_invalid_for_a_server(authority: Authority) -> None:
    pair = authority.issue("admin", common_name="ada")
    with pytest.raises(VerificationError):
        _policy(authority).build_server_verifier(HERE).verify(_certificate(pair), [])


def test_keys_match_their_certificates_and_are_readable_by_the_owner_only(authority: Authority, tmp_path: Path) -> None:
    pair = authority.issue("admin", common_name="ada")
    key = load_pem_private_key(pair.key_path.read_bytes(), password=None)
    assert key.public_key() == _certificate(pair).public_key()

    for path in (pair.key_path, signing_key(tmp_path, "tokens").key_path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def _policy(authority: Authority) -> PolicyBuilder:
    return PolicyBuilder().store(Store([authority.cert])).time(dt.datetime.now(dt.UTC))


def _certificate(pair: KeyPair) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pair.cert_path.read_bytes())
