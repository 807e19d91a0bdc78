"""Seeds and names of experiments, runs and checkpoints are bounded where they are read."""

from pathlib import Path

import pytest

from assay.errors import MOST_CHARACTERS, InputError
from assay.experiment.read_file import read_experiment
from assay.runs.run_names import parse_run_name
from tests.cli.conftest import assert_one_line, call
from tests.experiment.spec_texts import write_spec

SEEDS = "seeds = [42, 43]"
NAME = 'name = "verl8"'
ABOUT = 'about = "EGPO on HardGen; verl7 is its control"'


def refusal(folder: Path, old: str, new: str) -> str:
    with pytest.raises(InputError) as raised:
        read_experiment(write_spec(folder, (old, new)))
    return str(raised.value)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (SEEDS, "seeds = [0, 9223372036854775808]", "seeds"),
        (SEEDS, "seeds = [-9223372036854775809]", "seeds"),
        (NAME, f'name = "{"x" * (1 << 20)}"', "toml:1: name: "),
        (NAME, 'name = ".."', "toml:1: name: '..' cannot be a name"),
        (NAME, r'name = "a\u0000b"', "toml:1: name: "),
        ("[stage.sft]", f"[stage.{'s' * 101}]", "stage."),
        (ABOUT, r'about = "a\u001b[31m"', "toml:2: about: holds the control character"),
        ("path:hardgen.jsonl", r"path:a\u0000b", "toml:8: data.train.source: holds the control"),
    ],
)
def test_what_no_index_folder_or_terminal_can_hold_is_refused_by_line(
    tmp_path: Path, old: str, new: str, words: str
) -> None:
    said = refusal(tmp_path, old, new)
    assert words in said and said.isprintable() and len(said) < 2 * MOST_CHARACTERS


@pytest.mark.parametrize(
    "name", ["a#" + "9" * 5000, "a@sft.step-" + "9" * 5000, "x" * 100_000, "a/" + "b" * 5000]
)
def test_names_of_runs_of_any_length_are_one_line(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError) as raised:
        parse_run_name(name)
    assert len(str(raised.value)) < 2 * MOST_CHARACTERS
    (tmp_path / "runs").mkdir()
    assert_one_line(call("report", name, "--lab", tmp_path))
