"""What a model extracts is kept where the cited line prints it, and refused by name elsewhere."""

from decimal import Decimal
from pathlib import Path

import pytest

from assay.data.reported.instructions import cited, numbers_of
from assay.data.reported.read_reported import toml_values

TEXT = """\
# Results on gsm8k (n = 1,319)
| run | gsm8k | math500 |
| base | 71.60 | 40.2 |
| sft | 74.1 | 41.0 |
SFT is better than base on gsm8k by 2.5 points.
step 1: reward 0.30, step 2: reward 0.45
"""


def check(record: str) -> tuple[dict, list[str]]:
    kept, refused = cited(toml_values(record, Path("r.toml")), TEXT)
    return kept, [each.place for each in refused]


def test_numbers_of_their_lines_are_kept_with_the_printed_digits():
    kept, refused = check('[[runs]]\nname = "base"\nline = 3\nscores = { gsm8k = 71.6 }')
    assert not refused
    assert str(kept["runs"][0]["scores"]["gsm8k"]) == "71.60"


@pytest.mark.parametrize(
    ("record", "place"),
    [
        ('[[runs]]\nname = "a"\nline = 4\nscores = { gsm8k = 71.60 }', "runs.a.scores.gsm8k"),
        ('[[runs]]\nname = "a"\nline = 3\nscores = { gsm8k = 71.61 }', "runs.a.scores.gsm8k"),
        ('[[runs]]\nname = "a"\nscores = { gsm8k = 71.60 }', "runs.a.scores.gsm8k"),
        ('[[runs]]\nname = "a"\nline = 99\nscores = 71.60', "runs.a.scores"),
        ('[[runs]]\nname = "a"\nline = [1, 2, 5, 3]\nscores = 71.60', "runs.a.scores"),
        ('[[runs]]\nname = "a"\nline = 1\nitems = 8', "runs.a.items"),
        ('[[runs]]\nname = "a"\nline = 3\nsettings = { data = "9k" }', "runs.a.settings.data"),
        ('[[runs]]\nname = "a"\nsays = "better"', "runs.a.says"),
        ('[[changes]]\nof = "c"\nline = 5\nbefore = 71.6\nafter = 74.1\nsays = 2.5', "changes.c"),
        ('[[comparisons]]\nrun = "a"\ncontrol = "b"\nsays = "better"', "comparisons.a"),
        ("[scoring]\nline = 1\nitems = 500", "scoring.items"),
    ],
)
def test_what_does_not_stand_in_its_line_is_refused_by_name(record: str, place: str):
    assert [each[: len(place)] for each in check(record)[1]][:1] == [place]


def test_cells_may_cite_lines_of_their_own():
    record = '[[runs]]\nname = "x"\nline = 3\nlines = { math500 = 4 }\n'
    kept, refused = check(record + "scores = { gsm8k = 71.6, math500 = 41.0 }\n")
    assert not refused and kept["runs"][0]["lines"] == {"math500": 4}
    assert check(record + "scores = { math500 = 40.2 }\n")[1] == ["runs.x.scores.math500"]


def test_a_refused_reading_goes_with_its_step():
    record = '[[metrics]]\nname = "reward"\nline = 6\nsteps = [1, 2, 3]\nvalues = [0.30, 0.45, 0.5]'
    kept, refused = check(record)
    assert refused == ["metrics.reward.steps", "metrics.reward.values"]
    assert kept["metrics"][0]["steps"] == [1, 2]
    assert kept["metrics"][0]["lines"] == [6, 6]


@pytest.mark.parametrize(
    ("line", "numbers"),
    [
        ("gsm8k and Qwen2.5", []),
        ("共400条，正确210条", ["400", "210"]),
        ("210/400 = 52.5%", ["210", "400", "52.5"]),
        ("hardgen 14k", ["14", "14000"]),
        ("1,319 items, 1e-5", ["1319", "1E-5"]),
        ("５２.５％", ["52.5"]),
        ("a 0.3–1.0", ["0.3", "1.0"]),
    ],
)
def test_numbers_of_a_line(line: str, numbers: list[str]):
    assert sorted(numbers_of(line)) == sorted(map(Decimal, numbers))


def test_a_claim_without_a_line_is_not_kept_at_all():
    kept, refused = check('[[effects]]\nwhat = "clip"\nsays = "better"\n')
    assert kept["effects"] == [] and refused == ["effects.0"]
    kept, refused = check('[[effects]]\nwhat = "clip"\nsays = "better"\nline = 5\n')
    assert len(kept["effects"]) == 1 and not refused
