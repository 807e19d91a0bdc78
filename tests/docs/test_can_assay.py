"""The page "Can Assay ...?" tells the truth."""

import re

from tests.docs.pages import BLOCK, DOCS

PAGE = "can-assay.md"
ROW = re.compile(r"^\| (.+?) \| (yes|no|untested) \| (.+) \|$", re.MULTILINE)
TEXT = BLOCK.sub("", (DOCS / PAGE).read_text(encoding="utf-8"))
ANSWERS = {question: (answer, reason) for question, answer, reason in ROW.findall(TEXT)}


def test_every_row_of_the_page_has_one_of_three_answers_and_its_key_or_reason():
    rows = [line for line in TEXT.splitlines() if re.match(r"^\| (?!---|can Assay)", line)]
    assert len(rows) == len(ANSWERS) > 25
    assert all(reason.strip() for _, reason in ANSWERS.values())


KEYS = re.compile(r"`(\w+) = ")


def test_every_key_that_the_page_names_is_a_key_of_the_experiment_file():
    reference = (DOCS / "experiment.md").read_text(encoding="utf-8")
    named = {key for _, reason in ANSWERS.values() for key in KEYS.findall(reason)}
    assert len(named) > 5
    listed = re.findall(r"^- `(\w+)` \(|`(\w+) = \"\w+\"`", reference, re.MULTILINE)
    assert named <= {key for keys in listed for key in keys}
