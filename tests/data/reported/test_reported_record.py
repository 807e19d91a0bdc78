"""TOML records: digits are kept, and what is wrong is named by file, line and field."""

from decimal import Decimal
from pathlib import Path

import pytest

from assay.data.reported.read_reported import read_reported
from assay.data.reported.reported_record import Reported
from assay.errors import InputError


def read(folder: Path, text: str, items: int | None = None) -> Reported:
    file = folder / "r.toml"
    file.write_text(text, encoding="utf-8")
    (record,) = read_reported(file, items).records
    return record


RUN = '[[runs]]\nname = "a"\nscores = '


def test_one_score_several_repeats_and_several_cells_are_one_shape(tmp_path: Path):
    assert read(tmp_path, RUN + "15.0").runs[0].scores == {"": (Decimal("15.0"),)}
    found = read(tmp_path, RUN + "{ x = 1.0, y = [2.0, 3.0] }").runs[0].scores
    assert {cell: len(values) for cell, values in found.items()} == {"x": 1, "y": 2}


def test_items_of_the_command_line_fill_a_gap_and_overrule_nothing(tmp_path: Path):
    assert read(tmp_path, RUN + "15.0", items=200).scoring.items == 200
    text = "[scoring]\nitems = 100\n" + RUN + "15.0"
    assert read(tmp_path, text, items=200).scoring.items == 100


CLAIM = '[[comparisons]]\nrun = "b"\ncontrol = "a"\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[[runs]]\nname = "a"\nscore = 1', r":3: runs\.0\.score: unknown key .*audit-record.toml"),
        (RUN + '"many"', r":3: runs\.0\.scores: expected a number, got 'many'"),
        (RUN + "150.0", r":3: runs\.0\.scores: 150.0 is outside 0 to 100 .*share"),
        (RUN + "1e-999999999", r":3: runs\.0\.scores: .*of this size"),
        (RUN + '1\nsays = "good"', r":4: runs\.0\.says: .*'better'.* got 'good'"),
        (RUN + "1\n" + RUN + "2", "runs: 'a' occurs twice"),
        (RUN + '1\ncontrol = "z"', r":4: runs\.0\.control: nothing is named 'z'"),
        (RUN + "1\nright = [1, 2]", r":4: runs\.0\.right: 2 counts for 1 scores"),
        (RUN + "1\n" + CLAIM + 'cells = "z"', r":7: comparisons\.0\.cells: .*'z'"),
        ("[[ratings]]\nmarks = []\nsays = 4", r":2: ratings\.0\.marks: .*at least 1 item"),
        ('[[causes]]\ncause = ""\neffect = "m"', r":2: causes\.0\.cause: .*at least 1 character"),
        (RUN + '1\n[[searches]]\nchosen = ""', r":5: searches\.0\.chosen: .*at least 1"),
        (RUN + "1\n" + CLAIM + "interval = 1", r":7: comparisons\.0\.interval: .*tuple, got 1"),
        (
            '[[metrics]]\nname = "m"\nsteps = [1, 2]\nvalues = [0.1]',
            r":4: metrics\.0\.values: 1 of them for 2 steps",
        ),
        (
            '[[metrics]]\nname = "cost"\n[[forecasts]]\nmetric = "costs"\nstep = 5\nsays = 1',
            r":4: forecasts\.0\.metric: nothing is named 'costs' .*'cost'",
        ),
    ],
)
def test_a_bad_record_is_named_by_line_and_field(tmp_path: Path, text: str, words: str):
    with pytest.raises(InputError, match=rf"r\.toml{words}|{words}") as raised:
        read(tmp_path, text)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("r.txt", b"x", "reads no .txt"),
        ("r.toml", b"\xff\xfe", "not UTF-8"),
        ("r.md", b"# Title\n\nNothing here but 50% of a sentence.\n", "no recognisable results"),
        ("r.csv", b"a,b\n1,2\n", "no table has the columns run and score .*titles: a, b"),
        ("r.csv", b"run,score\na,61 or so\n", r"r\.csv:2: score: '61 or so' is no number"),
        ("r.csv", b"run,score\na,61.5,2\n", "has 3 cells, and there are 2 columns"),
        ("r.csv", b"run,score,score\na,61.5,2\n", r"r\.csv:1: two columns have the title 'score'"),
        ("r.csv", b"run,score,control,says\na,61.5,a,good\n", r"r\.csv:2: .*got 'good'"),
    ],
)
def test_a_file_without_results_is_refused(tmp_path: Path, name: str, content: bytes, words: str):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=words):
        read_reported(tmp_path / name)


def table(folder: Path, name: str, text: str, **columns: str) -> Reported:
    (folder / name).write_text(text, encoding="utf-8")
    named = {role.replace("__", "."): title for role, title in columns.items()}
    (record,) = read_reported(folder / name, columns=named).records
    return record


def test_rows_of_a_table_are_scores_repeats_counts_settings_and_claims(tmp_path: Path):
    text = "run,benchmark,score,right,items,control,says,setting.data\n"
    text += "base,gsm8k,71.50,943,1319,,,\nbase,gsm8k,71.6%,944,1319,,,\n"
    text += 'ours,gsm8k,74.1,,1319,base,Better,"first 1000, in order"\nours,math500,N/A,,500,,,\n'
    record = table(tmp_path, "r.csv", "# a comment\n" + text)
    base, ours = record.runs
    assert [str(value) for value in base.scores["gsm8k"]] == ["71.50", "71.6"]
    assert (base.right, base.items) == ({"gsm8k": (943, 944)}, {"gsm8k": 1319})
    (claim,) = record.comparisons
    assert (claim.run, claim.control, claim.says) == ("ours", "base", "better")
    assert (claim.cells, claim.line, ours.control) == (("gsm8k",), 5, "base")
    assert (ours.scores, ours.line) == ({"gsm8k": (Decimal("74.1"),)}, 5)
    assert ours.settings == {"data": "first 1000, in order"}


def test_columns_of_pipe_tables_are_named_and_other_tables_skipped(tmp_path: Path):
    text = "|Method|n|GSM8K acc|\n|:--|--|--|\n|`base`|1319|**71.6**|\n\n|x|y|\n|-|-|\n|1|2|\n"
    names = {"run": "Method", "items": "n", "score__gsm8k": "GSM8K acc"}
    record = table(tmp_path, "r.md", text, **names)
    assert record.runs[0].scores == {"gsm8k": (Decimal("71.6"),)}
    assert record.runs[0].items == {"gsm8k": 1319}
    columns = {"run": "Method", "score": "GSM8K acc"}
    assert read_reported(tmp_path / "r.md", columns=columns).skipped == (5,)
    with pytest.raises(InputError, match="metod: is no role"):
        read_reported(tmp_path / "r.md", columns={"metod": "Method"})
    with pytest.raises(InputError, match="no table has the columns Model, acc"):
        read_reported(tmp_path / "r.md", columns={"run": "Model", "score": "acc"})
