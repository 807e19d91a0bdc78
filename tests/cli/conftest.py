"""The tiny lab, once as it is given and once with a finished run, and a way to call `assay`."""

import functools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer.main
import typer.testing
from typer.testing import CliRunner, Result

from assay.cli.main import app
from tests.tiny_labs import make_lab

Assay = Callable[..., Result]
typer.testing._get_command = functools.cache(typer.main.get_command)  # type: ignore[attr-defined]


@dataclass(frozen=True)
class TinyLab:
    """A lab's root with its experiment file."""

    root: Path

    @property
    def file(self) -> Path:
        return self.root / "tiny.toml"

    def shrink(self) -> None:
        """Measure less, where a test does not look at the scores."""
        text = self.file.read_text().partition("[evaluate.sampled]")[0]
        self.file.write_text(text.replace('"base", "sft.best", "rl.last"', '"base", "rl.last"'))

    def edit(self, old: str, new: str) -> None:
        """Replace a text in the experiment file."""
        text = self.file.read_text()
        assert old in text
        self.file.write_text(text.replace(old, new))


def call(*arguments: object) -> Result:
    """`assay ARGUMENTS` in this process, whose commands are built once."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def answer(result: Result) -> Any:
    """The one object that `--json` printed."""
    return json.loads(result.stdout)


def run_code(
    code: str, *arguments: object, given: str = "", cwd: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """A Python of its own that runs this code and reads what is given."""
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        input=given,
        cwd=cwd,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
    )


def spawn(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """`assay ARGUMENTS` in a process of its own."""
    code = "import sys; sys.argv[0] = 'assay'; from assay.cli.main import app; app()"
    return run_code(code, *arguments, **environment)


def assert_one_line(result: Any, *words: str, code: int = 2) -> None:
    """Exit code, no traceback, and one line on stderr that holds all words."""
    lines = [line for line in result.stderr.splitlines() if line]
    refusal = lines[-1] if lines else ""
    assert refusal.startswith("assay: "), result.stderr
    assert all(word in refusal for word in words), refusal
    assert "Traceback" not in result.stderr
    status = result.exit_code if isinstance(result, Result) else result.returncode
    assert status == code


@pytest.fixture(scope="session")
def made_lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lab that nobody may change."""
    return make_lab(tmp_path_factory.mktemp("lab")).parent


@pytest.fixture(scope="session")
def finished_lab(made_lab: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The same lab after one run without its page, that nobody may change: the end looks."""
    from tests.from_files import start

    root = tmp_path_factory.mktemp("finished")
    shutil.copytree(made_lab, root, dirs_exist_ok=True)
    start(root / "tiny.toml", root=root)
    before = written(root)
    yield root
    now = written(root)
    assert {f for f in now.keys() | before if now.get(f) != before.get(f)} == set()


def written(root: Path) -> dict[Path, int]:
    """When each file of the lab's runs was written."""
    return {file: file.stat().st_mtime_ns for file in root.glob("runs/**/*") if file.is_file()}


@pytest.fixture
def lab(made_lab: Path, tmp_path: Path) -> TinyLab:
    """A lab of one's own."""
    shutil.copytree(made_lab, tmp_path, dirs_exist_ok=True)
    return TinyLab(tmp_path)


@pytest.fixture
def trained(finished_lab: Path, tmp_path: Path) -> TinyLab:
    """A lab of one's own with a finished run."""
    shutil.copytree(finished_lab, tmp_path, dirs_exist_ok=True)
    return TinyLab(tmp_path)
