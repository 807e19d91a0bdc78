"""`assay compare --fail-on` and the action that wraps it: a CI step fails where it has to."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from assay.compare.table import failures
from assay.errors import InputError
from assay.library.actions import compare
from tests.cli.conftest import call

ROOT = Path(__file__).parents[2]
STEPS = {s["name"]: s for s in yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"]}
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
        ("worse", ["--fail-on", "undecided"], 3),
        ("near", ["--fail-on", "worse"], 0),
        ("near", ["--fail-on", "undecided"], 3),
        ("near", ["--fail-on", "worse", "--non-inferior", "10"], 0),
        ("near", ["--fail-on", "undecided", "--non-inferior", "10"], 0),
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


def stepped(folder: Path, runs: str, **inputs: str) -> subprocess.CompletedProcess[str]:
    """The action's comparing step in a shell, with this Python's own `assay` as the installed."""
    program = folder / "assay" / "bin" / "assay"
    program.parent.mkdir(parents=True, exist_ok=True)
    main = "import sys; sys.argv[0] = 'assay'; from assay.cli.main import app; app()"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{main}" "$@"\n')
    program.chmod(0o755)
    step = STEPS["Compare"]
    given = {"RUNS": runs, "FAIL_ON": "worse", "NON_INFERIOR": "", "OPTIONS": "", **inputs}
    assert given.keys() == step["env"].keys()
    places = {"RUNNER_TEMP": str(folder), "GITHUB_OUTPUT": str(folder / "outputs")}
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
        env={**os.environ, **given, **places},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_the_action_fails_where_the_gate_does_and_keeps_the_result(files: Path):
    failed = stepped(files, "base.csv worse.csv")
    assert (
        failed.returncode == 3 and failed.stderr == "assay: worse is worse against base on table\n"
    )
    result = files / "assay-compare.json"
    assert (files / "outputs").read_text() == f"result={result}\n"
    assert json.loads(result.read_text())["result"]["gate"]["failed"]
    assert (
        stepped(files, "base.csv worse.csv", NON_INFERIOR="50", OPTIONS="--margin 5").returncode
        == 0
    )


@pytest.mark.slow
def test_the_action_installs_a_judge_without_torch(tmp_path: Path):
    """Needs the package index."""
    places = {"PYTHON": sys.executable, "SOURCE": str(ROOT), "RUNNER_TEMP": str(tmp_path)}
    subprocess.run(
        ["bash", "-ec", STEPS["Install"]["run"]], env={**os.environ, **places}, check=True
    )
    python = tmp_path / "assay" / "bin" / "python"
    asked = "import importlib.util as u; print(u.find_spec('torch'), u.find_spec('assay') is None)"
    done = subprocess.run([python, "-c", asked], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["None", "False"]
