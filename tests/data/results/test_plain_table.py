"""Plain tables: what is in a cell is what is read, and a bad cell is named by file and line."""

from pathlib import Path

import pytest

from assay.data.loaded import DataError
from assay.data.results.column_mapping import read_table
from assay.data.results.foreign_result import Result
from assay.data.results.readers import read_results

CSV = """item,run,score,repeat,output,note
a,base,1,0,yes,x
b,base,0,0,"two
lines",x
a,base,,1,,x
b,base,0.5,1,no,x
a,tuned,1,0,yes,x
"""


def written(folder: Path, text: str, name: str = "scores.csv") -> Path:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return file


def by_run(results: list[Result]) -> dict[str, Result]:
    return {result.run: result for result in results}


def test_every_run_of_a_csv_file_has_its_items_repeats_scores_and_outputs(tmp_path: Path):
    found = by_run(read_results(written(tmp_path, CSV)))
    assert list(found) == ["base", "tuned"]
    answers = [(a.item, a.repeat, a.score, a.output) for a in found["base"].answers]
    assert answers == [
        ("a", 0, 1.0, "yes"),
        ("b", 0, 0.0, "two\nlines"),
        ("a", 1, None, None),
        ("b", 1, 0.5, "no"),
    ]
    assert {r.metric for r in found.values()} == {"score"}
    assert not any(r.configured or r.checker or r.settings for r in found.values())


def test_json_lines_and_parquet_say_the_same_as_csv(tmp_path: Path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [
        {"item": "7", "run": "r", "score": 1.0, "output": "x"},
        {"item": "8", "run": "r", "score": None, "output": "y"},
    ]
    csv = written(tmp_path, "item,run,score,output\n7,r,1,x\n8,r,,y\n")
    lines = '{"item": 7, "run": "r", "score": 1, "output": "x"}\n'
    lines += '{"item": 8, "run": "r", "score": null, "output": "y"}\n'
    jsonl = written(tmp_path, lines, "scores.jsonl")
    parquet = tmp_path / "scores.parquet"
    pq.write_table(pa.Table.from_pylist(rows), parquet)
    (first,), (second,), (third,) = map(read_results, (csv, jsonl, parquet))
    assert first.answers == second.answers == third.answers
    assert [a.score for a in first.answers] == [1.0, None]


def test_a_file_of_one_run_needs_no_run_column_and_is_called_after_itself(tmp_path: Path):
    (result,) = read_results(written(tmp_path, "item,score\na,1\n", "mine.csv"))
    assert result.run == "mine"


def test_every_column_of_numbers_is_a_metric_and_text_is_none(tmp_path: Path):
    text = "item,run,exact,loose,comment\na,r,0,1,good\nb,r,1,1,3\n"
    results = read_results(written(tmp_path, text))
    assert [(r.metric, [a.score for a in r.answers]) for r in results] == [
        ("exact", [0.0, 1.0]),
        ("loose", [1.0, 1.0]),
    ]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("s.csv", "item,run,score\na,r,good\n", ("s.csv:2", "score", "a string", "not a number")),
        ("s.csv", "item,run,score\na,r,1\nb,r,nan?\n", ("s.csv:3", "score")),
        ("s.csv", "item,run,score\na,r,85\n", ("s.csv:2", "85 lies outside 0 to 1", "percentage")),
        ("s.csv", "item,run,score\na,r,-1\n", ("s.csv:2", "-1 lies outside")),
        ("s.csv", "item,run,score\na,r,inf\n", ("s.csv:2", "finite")),
        ("s.csv", "itme,run,score\na,r,1\n", ("s.csv:2", "item: missing", "itme")),
        ("s.csv", "item,run,scores\na,r,x\n", ("s.csv:2", "score: missing", "'scores'")),
        ("s.csv", "item,run,score\na,r\n", ("s.csv:2", "3 columns")),
        ("s.csv", "item,run,score\na,r,1,2\n", ("s.csv:2", "3 columns")),
        ("s.csv", 'item,run,score\na,r,"1\n', ("s.csv:", "malformed CSV")),
        ("s.csv", "item,run,score\n", ("s.csv", "no rows")),
        ("s.csv", "item,run,score\na,r,1\na,r,0\n", ("s.csv:3", "line 2", "'repeat'")),
        ("s.jsonl", '{"item": "a", "score": 1}\n{"item": "b", "sc', ("s.jsonl:2", "malformed")),
        ("s.jsonl", '{"item": "a", "score": "1"}\n', ("s.jsonl:1", "score", "a string")),
        ("s.jsonl", '{"item": ["a"], "score": 1}\n', ("s.jsonl:1", "item", "an array")),
    ],
)
def test_a_bad_row_is_named_by_file_and_line(
    tmp_path: Path, name: str, text: str, words: tuple[str, ...]
):
    with pytest.raises(DataError) as refusal:
        read_results(written(tmp_path, text, name))
    assert all(word in str(refusal.value) for word in words), refusal.value


def test_a_column_names_the_source_of_each_item(tmp_path):
    file = tmp_path / "scores.csv"
    file.write_text("item,run,score,cluster,scene\na,x,1,s,1\nb,x,0,s,2\na,y,1,s,1\nb,y,1,s,2\n")
    for result in read_table(file):
        assert result.clusters == {"a": "s", "b": "s"} and result.metric in ("score", "scene")
    by_scene = read_table(file, "scene")
    assert {r.metric for r in by_scene} == {"score"}, "what names clusters is no score"
    assert by_scene[0].clusters == {"a": "1.0", "b": "2.0"}


@pytest.mark.parametrize(
    ("rows", "cluster", "problem"),
    [
        ("a,1,s\na,0,t\n", None, "item 'a' is in 's' and in 't'"),
        ("a,1,s\nb,0,\n", None, "is no source of item 'b'"),
        ("a,1,\nb,0,s\n", None, "other records name none"),
        ("a,1,s\n", "scene", "is no source of item 'a'"),
    ],
)
def test_an_item_without_one_source_is_refused(tmp_path, rows, cluster, problem):
    file = tmp_path / "scores.csv"
    repeats = "".join(f"{row},{n}\n" for n, row in enumerate(rows.splitlines()))
    file.write_text("item,score,cluster,repeat\n" + repeats)
    with pytest.raises(DataError, match=problem):
        read_table(file, cluster)
