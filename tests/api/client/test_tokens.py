"""The token is sent only to the service."""

import logging
import traceback
from pathlib import Path

import httpx
import pytest

from api.client import (
    AsyncClient,
    Client,
    ClientSettingsError,
    UnexpectedResponseError,
    token_from_environment,
    token_from_file,
)
from api.client import access_operations as access
from api.client import operations as op
from api.client.tokens import BearerToken
from api.schemas.tokens import TokenRequest, TokenScope
from tests.api.client.conftest import URL, Send
from tests.api.client.wire import Answer, Wire, problem

SECRET = "fw_0197aaaabbbb_very-secret-very-secret-very-secret-very-s"
PART = "very-secret"  # errors that quote a value may shorten it
FREEZE = httpx.Response(200, headers={"ETag": '"1-a"'}, json={"frozen": True})


def test_the_token_is_sent_as_a_bearer_token(send: Send) -> None:
    wire = Wire([FREEZE])
    send(op.get_freeze(), wire.transport, token=SECRET)
    assert wire.requests[0].headers["Authorization"] == f"Bearer {SECRET}"


def test_without_a_token_no_authorization_header_is_sent(send: Send) -> None:
    wire = Wire([FREEZE])
    send(op.get_freeze(), wire.transport)
    assert "Authorization" not in wire.requests[0].headers


@pytest.mark.parametrize(
    "answer",
    [
        FREEZE,
        problem(401, detail="unknown token"),
        problem(429, retry_after="1"),
        httpx.Response(200, headers={"ETag": "x"}, text="{"),
        httpx.ConnectError,
        httpx.ReadTimeout,
    ],
    ids=["success", "401", "429", "not-json", "refused", "timeout"],
)
def test_the_token_is_in_no_log_and_no_error(
    send: Send, answer: Answer, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    shown = ""
    try:
        send(op.get_freeze(), Wire([answer]).transport, token=SECRET)
    except Exception as error:  # noqa: BLE001 - no error may contain the token
        shown = "".join(traceback.TracebackException.from_exception(error, capture_locals=False).format())
        shown += repr(error) + repr(vars(error)) + repr(error.__cause__) + repr(error.__context__)
    assert PART not in shown + caplog.text + "".join(capsys.readouterr())


def test_the_token_is_in_no_repr() -> None:
    wire = Wire([FREEZE])
    with Client(URL, token=SECRET, transport=wire.transport) as client:
        holders = (client, client._connection, BearerToken(SECRET), vars(client), vars(BearerToken(SECRET)))
        assert PART not in "".join(map(repr, holders))
        assert repr(client) == "Client('http://fleet.test')"
    assert repr(AsyncClient(URL, token=SECRET)) == "AsyncClient('http://fleet.test')"


def test_a_new_token_in_an_invalid_response_is_not_in_the_error(send: Send) -> None:
    call = access.create_token(TokenRequest(name="ci", scopes=frozenset({TokenScope.READ})))
    broken = httpx.Response(201, json={"secret": [SECRET], "more": SECRET})
    with pytest.raises(UnexpectedResponseError) as caught:
        send(call, Wire([broken]).transport)
    assert "info: is required; secret: expected text" in str(caught.value)
    assert PART not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("token", ["", "two words", "line\nend", "ümlaut", "x" * 16_385])
def test_a_token_that_is_invalid_in_a_header_is_refused_and_not_printed(token: str) -> None:
    with pytest.raises(ClientSettingsError, match="1 to 16,384 visible ASCII characters") as caught:
        Client(URL, token=token)
    assert not token or token not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("fleet.test:8400", "must be http://"),
        ("ftp://fleet.test", "must be http://"),
        ("http://", "must be http://"),
        ("http://fleet.test:http", "must be http://"),
        ("me:hunter2@fleet.test", "must be http://"),
        ("http://me:hunter2@fleet.test", "must not hold a user name or password"),
    ],
)
def test_an_invalid_url_is_refused_without_its_password(url: str, reason: str) -> None:
    with pytest.raises(ClientSettingsError, match=f"^url: .*{reason}") as caught:
        Client(url)
    assert "hunter2" not in str(caught.value)


def test_the_environment_names_the_token_or_its_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"  {SECRET}\n")
    assert token_from_environment({}) is None
    assert token_from_environment({"FLEETWRIGHT_TOKEN": "fw_a_b"}) == "fw_a_b"
    assert token_from_environment({"FLEETWRIGHT_TOKEN_FILE": str(file)}) == SECRET
    both = {"FLEETWRIGHT_TOKEN": "fw_a_b", "FLEETWRIGHT_TOKEN_FILE": str(file)}
    assert token_from_environment(both) == "fw_a_b"


def test_an_invalid_token_file_is_reported(tmp_path: Path) -> None:
    empty, binary, missing = (tmp_path / name for name in ("empty", "binary", "missing"))
    empty.write_text(" \n")
    binary.write_bytes(b"\xff\xfe")
    for path, reason in ((empty, "is empty"), (binary, "ASCII"), (missing, "No such file"), (tmp_path, "directory")):
        with pytest.raises(ClientSettingsError, match=reason) as caught:
            token_from_file(path)
        assert str(path) in str(caught.value)


def test_a_client_is_configured_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLEETWRIGHT_TOKEN_FILE", raising=False)
    monkeypatch.delenv("FLEETWRIGHT_URL", raising=False)
    monkeypatch.setenv("FLEETWRIGHT_TOKEN", SECRET)
    assert repr(Client.from_environment()) == "Client('http://127.0.0.1:8400')"
    monkeypatch.setenv("FLEETWRIGHT_URL", "https://fleet.test/base")
    client = AsyncClient.from_environment()
    assert repr(client) == "AsyncClient('https://fleet.test/base')"
    assert client._connection.auth is not None


def test_a_token_file_that_changes_is_read_again(tmp_path: Path) -> None:
    """The kubelet replaces the token of a projected volume; while the file is missing, the last one is sent."""
    file = tmp_path / "token"
    file.write_text("first\n")
    auth = BearerToken(file)

    def sent() -> str:
        (request,) = auth.auth_flow(httpx.Request("GET", "http://127.0.0.1"))
        return str(request.headers["Authorization"])

    assert sent() == "Bearer first"
    (tmp_path / "new").write_text("second")
    (tmp_path / "new").replace(file)
    assert sent() == "Bearer second"
    file.unlink()
    assert sent() == "Bearer second"
    with pytest.raises(ClientSettingsError, match="token file"):
        BearerToken(file)
