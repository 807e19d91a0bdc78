"""The shell completes names of runs of the lab that the command line speaks of."""

from pathlib import Path

import pytest

from assay.runs.run_directory import create_run
from tests.cli.conftest import spawn


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("demo", "demo", "demo-long", "verl7"):
        create_run(tmp_path, name, seed=1, spec="", new=True)
    return tmp_path


def complete(words: str, incomplete: str, **environment: str) -> list[str]:
    """What the installed completion of bash prints for a command line."""
    line = f"assay {words} {incomplete}"
    done = spawn(
        _ASSAY_COMPLETE="complete_bash",
        COMP_WORDS=line,
        COMP_CWORD=str(len(line.split()) - bool(incomplete)),
        **environment,
    )
    assert not done.stderr
    return done.stdout.split()


def test_names_of_runs_are_offered_once_each_and_behind_a_slash_their_ids(root: Path):
    assert complete("compare", "de", ASSAY_LAB=str(root)) == ["demo", "demo-long"]
    ids = sorted(path.name for path in (root / "runs" / "demo").iterdir())
    assert complete("resume", "demo/", ASSAY_LAB=str(root)) == [f"demo/{id_}" for id_ in ids]


def test_the_lab_on_the_line_counts_before_between_or_after_the_verbs(root: Path):
    assert complete(f"select --lab {root}", "ve") == ["verl7"]
    assert complete(f"--lab {root} resume", "ve") == ["verl7"]
    for words in (f"runs --lab {root} log", f"runs log --lab {root}", f"--lab {root} runs log"):
        assert complete(words, "ve") == ["verl7"]
