"""What an experiment file says of itself in the notebook."""

from pathlib import Path

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
