"""`audit`: checkpoints and anchors, filters, the export."""

import json
from pathlib import Path

import pytest

from tests.api.cli.samples import OFFER
from tests.testbed.cli import Cli


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A directory with a document to push."""
    (tmp_path / "offers.yaml").write_text(OFFER)
    return tmp_path


def test_a_checkpoint_is_an_anchor_of_later_checks(remote: Cli, files: Path) -> None:
    anchor = remote("audit", "checkpoint").stdout.strip()
    seq, _colon, digest = anchor.partition(":")
    remote("offers", "push", files / "offers.yaml")
    done = remote("audit", "check", "--anchor", anchor)
    assert done.code == 0
    assert f"checked from entry {int(seq) + 1} on" in done.stderr
    assert remote("audit", "check", "--full").stderr == ""
    forged = remote("audit", "check", "--anchor", f"{seq}:{digest[::-1]}")
    assert (forged.code, forged.stdout.split(", ")[1]) == (1, f"broken at {seq}\n")


def test_entries_are_filtered(remote: Cli, files: Path) -> None:
    remote("offers", "push", files / "offers.yaml")
    options = ("--action", "document.replaced", "--subject", "offers/", "--since", "2026-01-01")
    found = remote("audit", "list", *options, "-o", "json").json
    assert {entry["action"] for entry in found} == {"document.replaced"}
    assert remote("audit", "list", "--before", "2026-01-01T00:00:00Z", "-o", "json").json == []
    done = remote("audit", "list", "--since", "yesterday")
    assert done.refused == ["--since: 'yesterday' is no moment, expected one like 2026-11-21T06:00:00Z"]


def test_the_audit_is_exported_into_a_new_file(remote: Cli, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.cli.admin.audit.EXPORTED_AT_ONCE", 2)
    for _ in range(3):
        remote("offers", "push", files / "offers.yaml")
    entries = remote("audit", "check", "-o", "json").json["entries"]
    done = remote("audit", "export", files / "audit.ndjson")
    assert done.stdout == f"{entries} entries written to {files / 'audit.ndjson'}\n"
    numbers = [json.loads(line)["seq"] for line in (files / "audit.ndjson").read_text().splitlines()]
    assert numbers == list(range(1, entries + 1))
    again = remote("audit", "export", files / "audit.ndjson")
    assert again.refused == [f"FILE: {files / 'audit.ndjson'} exists, expected a new file"]
