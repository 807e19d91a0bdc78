"""A rubric that cannot be used is one line with its place; one that can says all to the judge."""

from pathlib import Path

import pytest

from assay.errors import InputError
from assay.experiment.read_file import read_table
from assay.experiment.rubric_file import RubricFile

PLAIN = """
model = "grader"
[criteria.kind]
about = "5: kind."
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "quality.toml"
    file.write_text(text)
    return file


def test_a_short_rubric_has_the_usual_scale(tmp_path):
    rubric = read_table(RubricFile, written(tmp_path, PLAIN)).rubric()
    assert rubric.levels == {"kind": (1.0, 2.0, 3.0, 4.0, 5.0)}
    assert (rubric.attempts, rubric.pairs) == (3, False)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('model = "g"\n', r"quality\.toml: criteria: .*missing|required"),
        (PLAIN + 'abot = "x"\n', r"quality\.toml:5: criteria\.kind\.abot: unknown key.*about"),
        (PLAIN + "scale = [5, 1]\n", r":5: criteria\.kind\.scale: 5 to 1 is no scale"),
        ("pairs = true\nreference = true\n" + PLAIN, r":2: reference: a pair has no third"),
        (PLAIN.replace("kind", "reason"), r"criteria\.reason: is a word of verdicts"),
    ],
)
def test_what_is_wrong_is_named_with_line_and_fix(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        read_table(RubricFile, written(tmp_path, text))


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InputError, match=r"none\.toml: no such file"):
        read_table(RubricFile, tmp_path / "none.toml")
