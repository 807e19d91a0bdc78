"""Everything that is wrong with a file at once: values, names of registers, absent files."""

from pathlib import Path

import pytest

from assay.errors import InputError
from assay.lab.session.validate import read_whole
from tests.experiment.spec_texts import write_spec


def wrong(root: Path, *changes: tuple[str, str], overrides: tuple[str, ...] = ()) -> list[str]:
    """The places of all problems, `hardgen.jsonl` being there."""
    file = write_spec(root, *changes)
    (root / "hardgen.jsonl").touch()
    with pytest.raises(InputError) as raised:
        read_whole(file, overrides, root)
    errors = raised.value.each or (raised.value,)
    return [str(error).replace(str(file), "e.toml").split(": ")[1] for error in errors]


NAMES = (("strict_binary = 1.0", "strct = 1.0"), ("bfcl/simple_python", "bfcl/simple"))
FILES = ("path:hardgen.jsonl", "path:absent.jsonl")
MODEL = ('task = "tools"', 'task = "tools"\nmodel = "path:absent"')


def test_names_and_files_are_told_together(tmp_path):
    assert wrong(tmp_path, *NAMES, FILES, MODEL) == [
        "model",
        "data.train.source",
        "stage.rl.reward.strct",
        "evaluate.bfcl.benchmark",
    ]


def test_a_problem_of_an_override_is_named_by_it(tmp_path):
    file = write_spec(tmp_path)
    with pytest.raises(InputError) as raised:
        read_whole(file, ["stage.rl.reward=none", "data.train.source=path:other"], tmp_path)
    assert [str(each).partition(":")[0] for each in raised.value.each] == [
        "--set data.train.source=path",
        "--set stage.rl.reward=none",
    ]


def test_a_start_in_another_run_must_be_there(tmp_path):
    start = ('start = "sft.best"', 'start = "run:before@sft.best"')
    assert wrong(tmp_path, start) == ["stage.rl.start"]
    with pytest.raises(InputError, match="no run named 'before'"):
        read_whole(write_spec(tmp_path, start), (), tmp_path)
