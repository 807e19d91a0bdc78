"""Labels are checked line by line against the scale of their rubric."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from assay.data.hashing import sha256_text
from assay.data.loaded import DataError
from assay.tasks.label_file import read_labels
from assay.tasks.rubric import Criterion, Rubric

GRADES = Rubric("grader", "", {"kind": Criterion("", 1, 3)})
TWO = replace(GRADES, criteria={"kind": Criterion("", 1, 3), "short": Criterion("")})
PAIRS = replace(GRADES, pairs=True)


def written(folder: Path, *lines) -> Path:
    file = folder / "labels.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def test_grades_preferences_and_lines_that_wait_are_read(tmp_path):
    line = {"item": "a", "question": "?", "answer": "x"}
    found = read_labels(
        written(tmp_path, line | {"label": 2}, line | {"item": "b", "label": None}), GRADES
    )
    (label,) = found.labels
    assert (label.grades, label.sha256, found.waiting) == ({"kind": 2.0}, sha256_text("x"), 1)
    both = line | {"label": {"kind": 1, "short": 5}}
    assert read_labels(written(tmp_path, both), TWO).labels[0].grades == {"kind": 1, "short": 5}
    for word, worth in {"answer": 1.0, "reference": 0.0, "tie": 0.5}.items():
        (label,) = read_labels(written(tmp_path, line | {"label": word}), PAIRS).labels
        assert label.grades == {"preference": worth}
    hashed = {"item": "a", "answer_sha256": "0f", "label": 1}
    (label,) = read_labels(written(tmp_path, hashed), GRADES).labels
    assert (label.sha256, label.answer) == ("0f", None)


@pytest.mark.parametrize(
    ("line", "rubric", "message"),
    [
        ({"answer": "x", "label": 1}, GRADES, r"labels\.jsonl:2: item: missing"),
        ({"item": "a", "label": 1}, GRADES, r":2: answer: missing \(write the answer, or its"),
        ({"item": "a", "answer": "x", "label": 4}, GRADES, r":2: label: 4 is no whole number from"),
        ({"item": "a", "answer": "x", "label": True}, GRADES, r":2: label: True is no whole"),
        ({"item": "a", "answer": "x", "label": "good"}, GRADES, r":2: label: 'good' is no whole"),
        ({"item": "a", "answer": "x", "label": 2}, TWO, r":2: label: does not grade .*\"short\""),
        (
            {"item": "a", "answer": "x", "label": {"kind": 2, "short": 9}},
            TWO,
            r":2: label\.short: 9 is no whole number from 1 to 5",
        ),
        ({"item": "a", "answer": "x", "label": 1}, PAIRS, r":2: label: 1 is no preference"),
        ({"item": "z", "answer": "z", "label": 1}, GRADES, r"answer: .* in line 1 already"),
    ],
)
def test_a_bad_line_is_named_with_its_field(tmp_path, line, rubric, message):
    right = "tie" if rubric.pairs else dict.fromkeys(rubric.criteria, 1)
    first = {"item": "z", "answer": "z", "label": right}
    with pytest.raises(DataError, match=message):
        read_labels(written(tmp_path, first, line), rubric)
