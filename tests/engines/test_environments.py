"""Environments of other tools are whole or absent, and failures in them are one line."""

import subprocess
import sys
from pathlib import Path

import pytest

from assay.engines import environments
from assay.engines.environments import ENVIRONMENTS, Environment, ask, folder_of, python_of
from assay.errors import RunFailure, UnknownName


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """An environment without a package that a registry would have to give."""
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path))
    monkeypatch.setitem(ENVIRONMENTS, "bare", Environment(("pip", "pip")))
    return "bare"


def test_an_environment_is_made_once_and_apart_from_assays(bare: str, tmp_path: Path) -> None:
    script = tmp_path / "echo.py"
    script.write_text(
        "import json, sys\nprint('noise')\n"
        "print(json.dumps([json.load(sys.stdin), sys.prefix, 'torch' in sys.modules]))"
    )
    answer, prefix, torch = ask(bare, script, {"a": "é"})
    assert answer == {"a": "é"} and Path(prefix) == folder_of(bare) and not torch
    made = folder_of(bare).stat().st_ctime_ns
    assert python_of(bare).is_file() and folder_of(bare).stat().st_ctime_ns == made


def test_what_a_killed_installation_left_is_made_anew(bare: str) -> None:
    (folder_of(bare) / "bin").mkdir(parents=True)
    assert subprocess.run([python_of(bare), "-c", ""], check=False).returncode == 0


def test_a_script_that_fails_is_one_line_with_its_last_words(bare: str, tmp_path: Path) -> None:
    script = tmp_path / "bad.py"
    script.write_text("raise ValueError('no such template')")
    with pytest.raises(RunFailure, match=r"bad.py failed .* ValueError: no such template$"):
        ask(bare, script, {})


def test_a_package_that_cannot_be_had_leaves_nothing_that_counts(
    bare: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    impossible = Environment(("pip", "pip==0.0.0.1"))
    monkeypatch.setitem(ENVIRONMENTS, bare, impossible)
    with pytest.raises(RunFailure, match="environment bare cannot be installed"):
        python_of(bare)
    assert not (folder_of(bare) / "installed.json").exists()


def test_unknown_environments_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environments, "_command", lambda *_: pytest.fail("installed"))
    with pytest.raises(UnknownName, match=r"environment 'vrl'.*verl"):
        python_of("vrl")
    assert sys.prefix not in map(str, map(folder_of, ENVIRONMENTS))
