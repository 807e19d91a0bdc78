"""Help answers at once, because nothing heavy is imported for it."""

import subprocess
import sys

import pytest

from assay.cli.main import REMOVED
from tests.cli.conftest import call, spawn

HEAVY = ("torch", "transformers", "numpy", "pyarrow", "scipy", "matplotlib")
VERBS = ("run", "resume", "check", "eval", "compare", "matrix", "fill", "audit", "report", "runs")
VERBS = (*VERBS, "plan", "show", "watch", "log", "doctor", "convert", "select")
VERBS = (*VERBS, "ceiling", "patterns", "view")


@pytest.mark.parametrize("arguments", [["--help"], *([verb, "--help"] for verb in VERBS)])
def test_help_of_everything_works_and_names_the_common_options(arguments: list[str]):
    result = call(*arguments)
    assert result.exit_code == 0
    assert "--lab" in result.stdout and "--json" in result.stdout


def test_neither_the_command_line_nor_any_help_loads_a_heavy_package():
    code = f"""
import sys
from typer.testing import CliRunner
from assay.cli.main import app
for verb in [[], *([v] for v in {VERBS!r})]:
    assert CliRunner().invoke(app, [*verb, "--help"]).exit_code == 0
assert not [m for m in {HEAVY!r} if m in sys.modules], "heavy"
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_verb_has_help_and_no_other_is_known():
    listed = call("--help").stdout
    assert all(verb in listed for verb in VERBS)
    assert call("train").exit_code == 2


def test_version_is_printed_by_the_installed_command():
    assert spawn("--version").stdout.startswith("assay 0.")


def test_a_verb_that_went_names_what_took_its_place():
    for verb, instead in REMOVED.items():
        gone = call(verb, "tiny")
        assert gone.exit_code == 2 and instead.partition(":")[0] in gone.stderr
