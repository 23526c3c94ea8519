"""Requests that name files: a trace of requests, a recording of experts."""

import json
from pathlib import Path

import pytest

from api.cli.common.files import read_text
from api.cli.plan.file_references import with_files
from fleet.documents import Document, parse_document
from fleet.errors import DocumentError

TRACE = "time,input_tokens,output_tokens\n0,374,44\n"


class TestTraceFiles:
    def request(self, folder: Path, buckets: str) -> tuple[Document, Path]:
        path = folder / "requests" / "chat.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"workloads:\n  - name: chat\n    buckets:\n      {buckets}\n")
        return parse_document(path.read_text(), name="chat.yaml"), path

    def test_the_text_of_a_trace_replaces_its_file_name(self, tmp_path: Path) -> None:
        (tmp_path / "trace.csv").write_text(TRACE)
        document, path = self.request(tmp_path, "{trace_file: ../trace.csv, step_s: 60}")
        found = with_files(document, path)
        assert found.data["workloads"][0]["buckets"] == {"trace_csv": TRACE, "step_s": 60}
        assert document.data["workloads"][0]["buckets"]["trace_file"] == "../trace.csv"
        assert found.line_of(("workloads", 0, "buckets")) == 3

    @pytest.mark.parametrize("text", ["workloads: 5", "[]", "workloads: [5, {buckets: 7}]", "{}", ""])
    def test_requests_without_files_are_unchanged(self, text: str, tmp_path: Path) -> None:
        document = parse_document(text, name="x")
        assert with_files(document, tmp_path / "x").data == document.data

    @pytest.mark.parametrize(
        ("buckets", "problem"),
        [
            ("{trace_file: nowhere.csv}", "line 4: workloads[0].buckets.trace_file: "),
            ("{trace_file: 5}", "line 4: workloads[0].buckets.trace_file: expected the path of a CSV file, got 5"),
            ("{trace_file: a, trace_csv: b}", "line 4: workloads[0].buckets.trace_file: give either trace_file or"),
            ("{trace_file: .}", "line 4: workloads[0].buckets.trace_file: "),
        ],
    )
    def test_an_unreadable_file_is_reported_with_its_line(self, buckets: str, problem: str, tmp_path: Path) -> None:
        document, path = self.request(tmp_path, buckets)
        with pytest.raises(DocumentError) as caught:
            with_files(document, path)
        assert str(caught.value.problems[0]).startswith(problem)


class TestLoads:
    def request(self, folder: Path, loads: str) -> tuple[Document, Path]:
        path = folder / "chat.yaml"
        path.write_text(f"workloads:\n  - name: chat\n    expert_loads: {loads}\n")
        return parse_document(path.read_text(), name="chat.yaml"), path

    def test_the_counts_of_a_recording_replace_its_file_name(self, tmp_path: Path) -> None:
        (tmp_path / "sglang.json").write_text(json.dumps({"logical_count": [[0, 0], [3, 5], [7, 1]]}))
        document, path = self.request(tmp_path, "{file: sglang.json}")
        found = with_files(document, path).data["workloads"][0]["expert_loads"]
        assert found == {"windows": [[[3.0, 5.0], [7.0, 1.0]]]}

    def test_experts_without_tokens_get_least_tokens(self, tmp_path: Path) -> None:
        (tmp_path / "loads.csv").write_text("4,0\n")
        document, path = self.request(tmp_path, "{file: loads.csv, least_tokens: 2}")
        found = with_files(document, path).data["workloads"][0]["expert_loads"]
        assert found == {"windows": [[[4.0, 2.0]]], "least_tokens": 2}

    @pytest.mark.parametrize(
        ("loads", "problem"),
        [
            ("{file: nowhere.json}", "line 3: workloads[0].expert_loads.file: "),
            ("{file: 5}", "line 3: workloads[0].expert_loads.file: expected the path of a recording, got 5"),
            (
                "{file: a, tokens: [[1]]}",
                "line 3: workloads[0].expert_loads.file: give one of file, tokens",
            ),
            ("{file: chat.yaml}", "line 3: workloads[0].expert_loads.file: chat.yaml: "),
        ],
    )
    def test_an_unreadable_file_is_reported_with_its_line(self, loads: str, problem: str, tmp_path: Path) -> None:
        document, path = self.request(tmp_path, loads)
        with pytest.raises(DocumentError) as caught:
            with_files(document, path)
        assert str(caught.value.problems[0]).startswith(problem)


class TestTexts:
    def test_a_file_above_the_size_limit_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "large").write_bytes(b"x" * 1001)
        assert len(read_text(tmp_path / "large", max_bytes=1001)) == 1001
        with pytest.raises(DocumentError, match="is larger than 1,000 bytes, expected at most that"):
            read_text(tmp_path / "large", max_bytes=1000)

    def test_a_file_that_is_not_utf_8_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "binary").write_bytes(b"ab\xff")
        with pytest.raises(DocumentError, match="is not UTF-8 text: invalid start byte at byte 2"):
            read_text(tmp_path / "binary")


class TestPowerTrees:
    TREE = "name: hall\nperiods: 1\nfeeds: [{name: row-1, kind: row, limit_w: 9000}, {name: row-2, kind: row}]\n"

    def request(self, folder: Path, power_tree: str, more: str = "") -> tuple[Document, Path]:
        (folder / "hall.yaml").write_text(self.TREE)
        path = folder / "chat.yaml"
        path.write_text(f"workloads: []\npower_tree: {power_tree}\n{more}")
        return parse_document(path.read_text(), name="chat.yaml"), path

    def test_feeds_are_appended_to_the_power_domains_of_the_request(self, tmp_path: Path) -> None:
        own = "power_domains: [{name: lab, limit_w: 5}]\n"
        document, path = self.request(tmp_path, "{file: hall.yaml, members: {row-1: [chat/L4]}}", own)
        found = with_files(document, path).data
        row_1 = {"name": "row-1", "limit_w": 9000.0, "members": ["chat/L4"]}
        assert found == {"workloads": [], "power_domains": [{"name": "lab", "limit_w": 5}, row_1]}

    @pytest.mark.parametrize(
        ("power_tree", "problem"),
        [
            ("{file: hall.yaml}", "line 2: power_tree.members: must name the offers of each feed"),
            (
                "{file: hall.yaml, members: {row-3: [x]}}",
                "line 2: power_tree.members.row-3: unknown feed of tree 'hall'",
            ),
            ("{file: hall.yaml, members: {row-1: []}}", "line 2: power_tree.members.row-1: must name at least one"),
            (
                "{file: hall.yaml, risk: 0}",
                "line 2: power_tree.risk: input should be greater than or equal to 0.000000001",
            ),
            ("{members: {row-1: [x]}}", "line 2: power_tree.file: is required"),
            ("hall.yaml", "line 2: power_tree: expected a mapping"),
            ("{file: nowhere.yaml}", "No such file or directory"),
        ],
    )
    def test_an_invalid_power_tree_is_reported_with_its_line(
        self, power_tree: str, problem: str, tmp_path: Path
    ) -> None:
        document, path = self.request(tmp_path, power_tree)
        with pytest.raises(DocumentError) as caught:
            with_files(document, path)
        assert str(caught.value.problems[0]).startswith(problem)
