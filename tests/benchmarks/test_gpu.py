"""`python -m benchmarks.gpu` in its small form: sections give rows, comparisons pass, a wrong
weight makes each of them fail, and what breaks or takes too long costs no other row."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from benchmarks.driver import ROOT
from benchmarks.gpu import __main__ as program
from benchmarks.gpu.page import TITLES, markdown_page
from benchmarks.gpu.rows import FAILED, MEASURED, NOT_RUN, PASSED, Check, Row, Rows, Setup
from benchmarks.gpu.sections import SECTIONS

COMPARISONS = ("score", "gradients", "sample", "updates")


def run(folder: Path, *options: str) -> tuple[int, dict[str, list[dict[str, Any]]]]:
    """Exit code and rows by section."""
    command = [sys.executable, "-m", "benchmarks.gpu", "--small", "--device", "cpu"]
    done = subprocess.run(
        [*command, "--minutes", "60", "--out", str(folder), *options],
        cwd=ROOT,
        check=False,
        capture_output=True,
    )
    found = json.loads((folder / "sections.json").read_text())["sections"]
    return done.returncode, found


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("section", SECTIONS)
def test_every_section_gives_rows_and_none_fails(tmp_path: Path, section: str) -> None:
    code, found = run(tmp_path, "--only", section)
    assert found[section]
    assert {row["status"] for row in found[section]} <= {PASSED, MEASURED, NOT_RUN}, found
    assert code == 0
    if section in COMPARISONS:
        assert {row["status"] for row in found[section]} == {PASSED}
    assert f"## {TITLES[section]}" in (tmp_path / "page.md").read_text()


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("section", COMPARISONS)
def test_a_wrong_weight_on_the_device_fails_every_model(tmp_path: Path, section: str) -> None:
    code, found = run(tmp_path, "--only", section, "--fault")
    assert code == 1
    for model in ("llama", "qwen3, LoRA", "gpt_neox"):
        failed = [
            row["what"]
            for row in found[section]
            if model in row["what"] and row["status"] == FAILED and "fp32" in row["what"]
        ]
        assert failed, (model, found[section])


@pytest.mark.slow
def test_a_section_that_breaks_is_a_row(tmp_path: Path) -> None:
    found = program.run_section(Setup("no such section", "cpu"), 120, tmp_path)
    assert [(row.status, "KeyError" in row.found) for row in found] == [(FAILED, True)]


def test_rows_written_before_the_time_was_up_are_kept(tmp_path: Path) -> None:
    early = Row("early", PASSED, "0", "1")
    Rows(tmp_path / "score.jsonl").add(early)
    found = program.run_section(Setup("score", "cpu", small=True), 0.2, tmp_path)
    assert found[0] == early
    assert (found[1].status, found[1].found) == (FAILED, "failed: cut short after 0 s")


def test_a_line_that_was_being_written_is_no_row(tmp_path: Path) -> None:
    rows = Rows(tmp_path / "rows")
    rows.check("a", 0.5, 1.0)
    with rows.file.open("a") as stream:
        stream.write('{"what": "b", "sta')
    assert [row.what for row in rows.read()] == ["a"]


def test_what_is_above_its_bound_or_no_number_fails(tmp_path: Path) -> None:
    rows = Rows(tmp_path / "rows")
    for value in (1.0, 1.1, float("nan")):
        rows.check("one", value, 1.0)
    rows.worst("all", [Check("a", 0.9, 1.0), Check("b", 3.0, 10.0)])
    rows.worst("all", [Check("a", 0.9, 1.0), Check("b", float("nan"), 10.0)])
    statuses = [row.status for row in rows.read()]
    assert statuses == [PASSED, FAILED, FAILED, PASSED, FAILED]
    assert [row.found for row in rows.read()[3:]] == ["0.9 (a)", "nan (b)"]


def test_the_page_has_every_row_in_its_section() -> None:
    facts = {"name": "GPU", "command": "c", "time": "now", "about": "one", "versions": {"a": "1"}}
    rows = {"score": [Row("x|y", PASSED, "0", "1")], "steps": [Row("z", NOT_RUN, "needs w")]}
    page = markdown_page(facts, rows)
    assert "1 not run, 1 passed" in page
    assert "| x/y | passed | 0 | 1 |" in page.partition("## Steps beside TRL")[0]
    assert "| z | not run | needs w |  |" in page.partition("## Steps beside TRL")[2]
