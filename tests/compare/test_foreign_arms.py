"""Runs in files: which one a name means, and what each of them shows by itself."""

from pathlib import Path

import pytest

from assay.compare.foreign_arms import (
    ReadOptions,
    distinct_names,
    is_file,
    read_arms,
)
from assay.compare.judged_table import compare_arms
from assay.errors import InputError
from assay.judge.intervals import wilson
from tests.data.results.produced import PRODUCED


def table(folder: Path, text: str, name: str = "scores.csv") -> str:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return str(file)


TWO = "item,run,score\na,base,1\nb,base,0\na,tuned,1\nb,tuned,\n"


@pytest.mark.parametrize(
    ("text", "file"),
    [
        ("demo", False),
        ("demo@sft.last", False),
        ("demo/20260101-abc", False),
        ("absent.csv", True),
        ("absent.jsonl@base", True),
        ("out/x.eval", True),
    ],
)
def test_a_file_is_known_by_its_ending(text: str, file: bool):
    assert is_file(text) is file


def test_a_name_takes_one_run_of_a_file_or_all(tmp_path: Path):
    file = table(tmp_path, TWO)
    assert [arm.name for arm in read_arms(file)] == ["base", "tuned"]
    assert [arm.name for arm in read_arms(f"{file}@tuned")] == ["tuned"]
    with pytest.raises(InputError, match="did you mean 'tuned'"):
        read_arms(f"{file}@tunde")


def test_several_metrics_and_none_named_are_refused_with_their_names(tmp_path: Path):
    file = table(tmp_path, "item,exact,loose\na,1,1\nb,0,1\n")
    with pytest.raises(InputError, match="2 metrics: exact, loose"):
        read_arms(file)
    (arm,) = read_arms(file, ReadOptions(metric="loose"))
    assert arm.scores.scores.tolist() == [[1.0], [1.0]]
    with pytest.raises(InputError, match="did you mean 'exact'"):
        read_arms(file, ReadOptions(metric="exat"))


def test_a_metric_may_be_named_as_lm_eval_names_it_without_a_filter():
    folder = str(PRODUCED["lm-eval"][0].parent)
    (arm,) = read_arms(folder, ReadOptions(metric="acc,none"))
    assert arm.result is not None and arm.result.metric == "acc"
    with pytest.raises(InputError, match="holds no metric 'acc,strict'"):
        read_arms(folder, ReadOptions(metric="acc,strict"))


def test_a_run_alone_has_its_score_and_abstentions_are_never_zero(tmp_path: Path):
    text = "item,run,score,error\na,r,1,\nb,r,,timed out\nc,r,1,\n"
    (line,) = compare_arms(read_arms(table(tmp_path, text))).lines
    assert line.score == 1.0 and line.to_control is None
    assert line.interval == wilson(2, 2)
    assert line.abstained == 1


def test_runs_that_are_called_alike_get_the_name_of_their_file(tmp_path: Path):
    files = [table(tmp_path, TWO, "one.csv"), table(tmp_path, TWO, "two.csv")]
    arms = [*read_arms(files[0]), *read_arms(f"{files[1]}@base")]
    named = distinct_names(arms, [files[0], files[0], f"{files[1]}@base"])
    assert [s.name for s in named] == [f"{files[0]}@base", "tuned", f"{files[1]}@base"]
