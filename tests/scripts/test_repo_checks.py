"""The violations that the repository checks report."""

from pathlib import Path

from scripts import repo_checks


def test_a_long_module_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "long.py"
    path.write_text("x = 1\n" * (repo_checks.MODULE_LINES_MAX + 1))
    assert _violations(path, tmp_path) == ["long.py: 401 lines; allowed: 400. Split the module"]


def test_a_path_of_one_machine_is_reported_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text("fine\n" + "/".join(("see ", "home", "someone", "notes")) + "\n")
    assert _violations(path, tmp_path) == ["page.md:2: contains a path of one machine"]


def test_a_plain_file_has_no_violation(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text("fine\n")
    assert _violations(path, tmp_path) == []


def _violations(path: Path, root: Path) -> list[str]:
    return list(repo_checks.violations_in(path, root=root))
