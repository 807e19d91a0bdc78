"""What an experiment file says of itself in the notebook."""

from pathlib import Path

import pytest

from assay.errors import InputError
from assay.experiment.read_file import read_experiment
from assay.pages.notebook import notebook
from tests.pages.synthetic import SPEC, empty_run

NOTE = """
[note]
why = "Is it the | layout?"
expected = "<b>More</b> than verl7."
faults = ["cut at 1 024 tokens", "first rows"]

[data."""
SPEC_WITH_NOTE = SPEC.replace("[data.", NOTE.lstrip(), 1)


def test_the_entry_of_a_run_says_why_what_was_expected_and_every_fault(tmp_path: Path):
    empty_run(tmp_path, "verl8", SPEC_WITH_NOTE)
    text = notebook(tmp_path)
    assert "- why: Is it the \\| layout?" in text
    assert "- expected: \\<b\\>More\\</b\\> than verl7." in text
    assert text.count("- known fault: ") == 2 and "cut at 1 024 tokens" in text


def test_an_unknown_key_of_a_note_is_an_error_with_its_line(tmp_path: Path):
    file = tmp_path / "e.toml"
    text = SPEC_WITH_NOTE.replace("faults =", "fault =").format(name="verl8")
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=r"e\.toml:\d+: note\.fault: unknown key .*'faults'"):
        read_experiment(file)
