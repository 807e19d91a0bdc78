"""`assay compare --fail-on`: a CI step fails where it has to."""

from dataclasses import replace
from pathlib import Path

import pytest

from assay.compare.table import failures
from assay.errors import InputError
from assay.library.actions import compare
from tests.cli.conftest import call

RIGHT = {"base": 140, "worse": 90, "near": 138}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Three runs on 200 items: the control, one that is worse, one that is two items below."""
    for name, right in RIGHT.items():
        rows = [f"q{i},{i < right:d}" for i in range(200)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["item,score", *rows]))
    return tmp_path


@pytest.mark.parametrize(
    ("other", "options", "code"),
    [
        ("worse", ["--fail-on", "worse"], 3),
        ("near", ["--fail-on", "worse"], 0),
        ("near", ["--fail-on", "undecided"], 3),
        ("near", ["--fail-on", "worse", "--non-inferior", "10"], 0),
        ("worse", ["--fail-on", "worse", "--non-inferior", "50"], 0),
        ("worse", ["--fail-on", "worse", "--non-inferior", "10"], 3),
        ("worse", ["--non-inferior", "10"], 0),
        ("worse", [], 0),
    ],
)
def test_a_gate_ends_with_3_and_one_line(files: Path, other: str, options: list, code: int):
    pair = (files / "base.csv", files / f"{other}.csv")
    result = call("compare", *pair, *options, "--lab", files)
    assert result.exit_code == code
    assert result.stderr.count("\n") == (code == 3)
    assert code == 0 or result.stderr.startswith(f"assay: {other} is ")


def test_what_has_no_verdict_passes_no_gate(files: Path):
    table = compare(str(files / "base.csv"), str(files / "near.csv"), root=files).table
    line = table.lines[1]
    assert line.to_control is not None
    refused = replace(line.to_control.comparison, verdict="not comparable")
    without = replace(line, to_control=replace(line.to_control, comparison=refused))
    table = replace(table, lines=(table.lines[0], without))
    assert failures([table], "worse") == ["near is not comparable against base on table"]
    with pytest.raises(InputError, match="no run was compared"):
        failures([replace(table, lines=table.lines[:1])], "worse")
