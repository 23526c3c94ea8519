from pathlib import Path

import pytest

from deploy.common.errors import UnreachableError
from deploy.demand.credentials import Credentials, read_credentials


def stored(folder: Path, text: str, *, name: str = "team-a") -> Path:
    (folder / f"{name}.yaml").write_text(text)
    return folder


def test_a_token_and_the_header_of_a_tenant_are_sent(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("abc\n")
    folder = stored(tmp_path, f"token_file: {tmp_path}/token\nheaders: {{X-Scope-OrgID: team-a}}\n")
    headers = read_credentials(folder, "team-a").http_headers()
    assert headers == {"X-Scope-OrgID": "team-a", "Authorization": "Bearer abc"}


def test_a_rotated_token_counts_at_once(tmp_path: Path) -> None:
    folder = stored(tmp_path, f"token_file: {tmp_path}/token\n")
    for token in ("old", "new"):
        (tmp_path / "token").write_text(token)
        assert read_credentials(folder, "team-a").http_headers()["Authorization"] == f"Bearer {token}"


def test_without_a_name_nothing_is_sent() -> None:
    assert read_credentials(None, None) == Credentials()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("token: s3cret\ntoken_file: /x\n", "token_file"),
        ("cert_file: /x\n", "key_file"),
        ("headers: {X Y: s3cret}\n", "headers"),
        ("s3cret", "document"),
        ("token_file: /does/not/exist\n", "token_file: FileNotFoundError"),
    ],
)
def test_an_error_names_the_field_and_hides_what_the_file_holds(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(UnreachableError) as raised:
        read_credentials(stored(tmp_path, text), "team-a").http_headers()
    assert reason in str(raised.value)
    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize(("folder", "reason"), [(True, "FileNotFoundError"), (False, "no folder of credentials")])
def test_missing_credentials_are_named(tmp_path: Path, *, folder: bool, reason: str) -> None:
    with pytest.raises(UnreachableError, match=reason):
        read_credentials(tmp_path if folder else None, "team-b")


def test_an_unreadable_certificate_is_named() -> None:
    with pytest.raises(UnreachableError, match="ca_file, cert_file or key_file"):
        Credentials(ca_file=Path("/does/not/exist")).tls()
