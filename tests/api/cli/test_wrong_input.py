"""Invalid files: exit code 2 and one line per error, with the file, the line, the field and the allowed values."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.api.cli.samples import OFFER, REQUEST, VALID
from tests.testbed.cli import Cli

CHECKED = {
    "gpus": ("gpus", "check"),
    "models": ("models", "check"),
    "offers": ("offers", "check"),
    "topology": ("topology", "check"),
    "request": ("plan",),
    "target": ("targets", "put", "chat"),
    "config": ("models", "from-config", "--name", "M"),
}

# kind of file, valid text, invalid text, expected messages
DEFECTS: dict[str, tuple[str, str, str, Sequence[str]]] = {
    "a negative price": (
        "offers",
        "price_usd_per_h: 4",
        "price_usd_per_h: -3",
        ["line 7: offers[0].price_usd_per_h: input should be greater than or equal to 0, got -3"],
    ),
    "an unknown GPU": (
        "offers",
        "gpu: H100",
        "gpu: H1000",
        ["line 6: offers[0].gpu: unknown GPU 'H1000'; nearest: H100, "],
    ),
    "an unknown market": (
        "offers",
        "on-demand",
        "rent",
        ["line 5: offers[0].market: input should be 'on-demand', 'spot', 'reserved' or 'owned', got 'rent'"],
    ),
    "a field twice": (
        "offers",
        "region: eu",
        "region: eu\n    region: us",
        ["line 5: offers[0].region: given twice, first on line 4"],
    ),
    "two defects": (
        "offers",
        "price_usd_per_h: 4",
        "price: 4",
        ["line 2: offers[0].price_usd_per_h: is required", "line 7: offers[0].price: is not a known field"],
    ),
    "a number as text": (
        "gpus",
        "memory_gb: 80",
        'memory_gb: "80"',
        ["line 6: gpus[0].memory_gb: expected a number, got '80'"],
    ),
    "a cap over the rating": (
        "gpus",
        "tdp_w: 400",
        "tdp_w: 400\n    cap_max_w: 900",
        ["line 10: gpus[0].cap_max_w: must be at most 2 x tdp_w (800), got 900"],
    ),
    "too much power on a row": (
        "topology",
        "limit_w: 20000",
        "limit_w: 9000",
        ["line 4: sites[0].power[0].limit_w: row 'row-a' may carry 9,000 W "],
    ),
    "an unknown rack": (
        "topology",
        "power_domain: rack-1",
        "power_domain: rack-9",
        ["line 7: sites[0].nodes[0].power_domain: "],
    ),
    "an unknown GPU in a node": (
        "topology",
        "gpu: H100",
        "gpu: H1000",
        ["line 7: sites[0].nodes[0].gpu: unknown GPU 'H1000'; nearest: H100, "],
    ),
    "an unknown architecture": (
        "models",
        "model_type: llama",
        "model_type: abacus",
        ["line 4: models[0].config.model_type: must be one of "],
    ),
    "a request for an unknown model": (
        "request",
        "Llama-3.1-8B",
        "Llama-3.1-8x",
        ["line 3: workloads[0].model: unknown model 'Llama-3.1-8x'; nearest: Llama-3.1-8B, "],
    ),
    "no rate": (
        "request",
        "rate_rps: 10",
        "min_replicas: 1",
        ["line 2: workloads[0]: give rate_rps or demand: the sizes alone have no rate"],
    ),
    "shares that do not add up": (
        "request",
        "share: [[1.0]]",
        "share: [[0.5]]",
        ["line 5: workloads[0].buckets.share: "],
    ),
    "an unknown mode": (
        "target",
        "workload: chat",
        "workload: chat\nmode: force",
        ["line 2: mode: input should be 'observe', 'recommend' or 'apply', got 'force'"],
    ),
    "a config without layers": (
        "config",
        '"num_hidden_layers": 32,',
        "",
        ["num_hidden_layers: is required"],
    ),
    "a config with half a layer": (
        "config",
        '"num_hidden_layers": 32,',
        '"num_hidden_layers": 0.5,',
        ["line 4: num_hidden_layers: expected a whole number, got 0.5"],
    ),
}


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A path for a file; without a token no service accepts it."""
    monkeypatch.setenv("FLEETWRIGHT_TOKEN", "")
    return tmp_path / "file.yaml"


@pytest.mark.parametrize("defect", DEFECTS)
def test_an_error_is_reported_with_its_line(defect: str, path: Path, cli: Cli) -> None:
    kind, valid, invalid, messages = DEFECTS[defect]
    assert VALID[kind].count(valid) == 1
    path.write_text(VALID[kind].replace(valid, invalid))

    done = cli(*CHECKED[kind], path)

    assert done.code == 2
    assert len(done.refused) == len(messages), done.stderr
    for line, expected in zip(done.refused, messages, strict=True):
        assert line.startswith(f"{path}: ")
        assert expected in line


@pytest.mark.parametrize("kind", ["gpus", "models", "offers", "topology"])
def test_the_same_file_without_the_error_is_valid(kind: str, path: Path, cli: Cli) -> None:
    path.write_text(VALID[kind])
    assert cli(*CHECKED[kind], path, "--format", "json").json == {"file": str(path), "good": True, kind: 1}


def test_the_file_may_come_on_stdin(cli: Cli) -> None:
    assert cli("offers", "check", "-", stdin=OFFER.encode()).code == 0
    done = cli("offers", "check", "-", stdin=OFFER.replace("eu", "").encode())
    assert done.refused == [
        "stdin: line 4: offers[0].region: expected text (a number or true/false meant as text needs quotes)"
    ]


@pytest.mark.parametrize("kind", CHECKED)
@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b"", "is empty, expected a mapping", id="empty"),
        pytest.param(b"# only a remark\n", "is empty, expected a mapping", id="a remark"),
        pytest.param(b"a: [1\nb: 2\n", "line 2: not valid YAML or JSON: ", id="syntax"),
        pytest.param(b"a:\n\t- b\n", "line 2: not valid YAML or JSON: ", id="a tab"),
        pytest.param(b"- 1\n", "expected a mapping", id="a list"),
        pytest.param(b"just words", "expected a mapping", id="words"),
        pytest.param(b"\xff\xfe\x00\x81" * 64, "is not UTF-8 text: ", id="binary"),
        pytest.param(b"a: \x00", "not valid YAML or JSON: character U+0000 is not allowed", id="a zero byte"),
        pytest.param(b"a: 1\n---\nb: 2\n", "holds a second document, expected one", id="two documents"),
        pytest.param(b"a: !!python/object:os.system x", "tag ", id="a tag"),
        pytest.param(b"[" * 5000, "nested deeper than 64 levels", id="too deep"),
    ],
)
def test_an_invalid_document_is_refused(kind: str, content: bytes, message: str, path: Path, cli: Cli) -> None:
    path.write_bytes(content)
    done = cli(*CHECKED[kind], path)
    assert done.code == 2
    (line,) = done.refused
    assert line.startswith(f"{path}: ")
    assert message in line


@pytest.mark.parametrize("kind", CHECKED)
class TestFilesThatCannotBeRead:
    def test_a_missing_file_is_reported(self, kind: str, path: Path, cli: Cli) -> None:
        done = cli(*CHECKED[kind], path)
        assert (done.code, done.refused) == (2, [f"{path}: No such file or directory"])

    def test_a_directory_is_refused(self, kind: str, tmp_path: Path, cli: Cli) -> None:
        done = cli(*CHECKED[kind], tmp_path)
        assert (done.code, done.refused) == (2, [f"{tmp_path}: Is a directory"])

    def test_a_symlink_loop_is_reported(self, kind: str, path: Path, cli: Cli) -> None:
        path.symlink_to(path)
        done = cli(*CHECKED[kind], path)
        assert (done.code, done.refused) == (2, [f"{path}: Too many levels of symbolic links"])


@pytest.mark.parametrize(
    "command",
    [
        ("gpus", "list", "--file"),
        ("gpus", "show", "H100", "--file"),
        ("offers", "check", "offers.yaml", "--gpus"),
        ("topology", "discover", "--ray", "http://127.0.0.1:9", "--labels"),
        ("plan", "request.yaml", "--gpus"),
        ("plan", "request.yaml", "--models"),
        ("plan", "request.yaml", "--offers"),
    ],
)
def test_files_of_options_are_checked_too(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("offers.yaml").write_text(OFFER)
    Path("request.yaml").write_text(REQUEST)
    Path("option.yaml").write_text("gpus: 3\nfield: 1\n")
    done = cli(*command, "option.yaml")
    assert done.code == 2
    assert all(line.startswith("option.yaml: line ") for line in done.refused)


def test_the_number_of_reported_errors_is_bounded(path: Path, cli: Cli) -> None:
    path.write_text("offers:\n" + "  - {}\n" * 400)
    done = cli("offers", "check", path)
    assert len(done.refused) == 101
    assert done.refused[-1].endswith(" more")


@pytest.mark.parametrize(
    ("args", "nearest"),
    [
        (("gpus", "show", "H1000"), "unknown GPU 'H1000'; nearest: H100, "),
        (("models", "show", "Llama-3.1-9B"), "unknown model 'Llama-3.1-9B'; nearest: Llama-3.1-8B, "),
        (("offers", "show", "aws"), "unknown offer 'aws'"),
        (("topology", "show", "n-1"), "unknown node 'n-1'"),
    ],
)
def test_an_unknown_name_is_reported_with_the_nearest(args: tuple[str, ...], nearest: str, cli: Cli) -> None:
    done = cli(*args)
    assert done.code == 2
    (line,) = done.refused
    assert line.startswith(nearest)


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(st.characters(codec="utf-8"), max_size=20),
    st.just([]),
    st.just({}),
    st.lists(st.integers(), max_size=3),
)


@pytest.mark.parametrize("kind", sorted(set(CHECKED) - {"target"}))  # a valid target would be sent
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_value_in_a_field_is_accepted_or_reported(kind: str, data: st.DataObject, path: Path, cli: Cli) -> None:
    words = re.split(r"(?<=[:\[,{ ])([\w./-]+)(?=[\s,}\]]|$)", VALID[kind])
    position = data.draw(st.integers(0, len(words) - 1), label="position")
    words[position] = json.dumps(data.draw(SCALARS, label="instead"))
    path.write_text("".join(words))
    done = cli(*CHECKED[kind], path)
    assert done.code in {0, 1, 2}
    assert done.code != 2 or done.refused


def test_a_file_of_ten_megabytes_is_refused_at_once(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "huge.yaml"
    path.write_bytes(b"# " + b"x" * 10_000_000)
    done = cli("plan", path)
    assert done.code == 2
    assert done.refused == [f"{path}: is larger than 8 MiB, expected at most that"]
