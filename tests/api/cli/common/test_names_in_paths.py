"""Names that are invalid in a URL path: one line with the field and exit code 2, without a request."""

import pytest

from tests.testbed.cli import Cli

UNREACHABLE = ("--url", "http://127.0.0.1:1")


@pytest.mark.parametrize("name", ["", ".", ".."])
@pytest.mark.parametrize(
    ("command", "field"),
    [
        (("targets", "show"), "name"),
        (("targets", "delete"), "name"),
        (("remediate", "case"), "case_id"),
        (("faults", "quarantine", "approve"), "node"),
        (("faults", "quarantine", "release"), "node"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else value,
)
def test_a_name_that_is_an_invalid_path_segment_is_refused(
    command: tuple[str, ...], field: str, name: str, cli: Cli
) -> None:
    done = cli(*command, name, *UNREACHABLE)
    assert done.code == 2
    (line,) = done.refused
    assert line == f"{field}: cannot stand in a path, expected a name other than '.' and '..', got {name!r}"
