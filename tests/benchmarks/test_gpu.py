"""`python -m benchmarks.gpu` in its small form: sections give rows, comparisons pass, a wrong
weight makes each of them fail, and what breaks or takes too long costs no other row."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from benchmarks.driver import ROOT
from benchmarks.gpu.page import TITLES
from benchmarks.gpu.rows import FAILED, MEASURED, NOT_RUN, PASSED, Check, Rows
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


def test_what_is_above_its_bound_or_no_number_fails(tmp_path: Path) -> None:
    rows = Rows(tmp_path / "rows")
    for value in (1.0, 1.1, float("nan")):
        rows.check("one", value, 1.0)
    rows.worst("all", [Check("a", 0.9, 1.0), Check("b", 3.0, 10.0)])
    rows.worst("all", [Check("a", 0.9, 1.0), Check("b", float("nan"), 10.0)])
    statuses = [row.status for row in rows.read()]
    assert statuses == [PASSED, FAILED, FAILED, PASSED, FAILED]
    assert [row.found for row in rows.read()[3:]] == ["0.9 (a)", "nan (b)"]
