"""OK-VQA from its files to the record: every answer of the frozen model says what scored it."""

import json
from pathlib import Path

import pytest

from assay.errors import RunFailure
from assay.runs.records import read_columns
from assay.runs.run_directory import RunDirectory, runs_of
from tests.from_files import start
from tests.lab.monitor.sinks.logged_run import Noted

EXPERIMENT = """\
name  = "vqa"
task  = "demos"
seeds = [7]

[model]
policy = "selector:random"

[model.frozen]
source = "scripted:frozen.jsonl"

[evaluate.test]
benchmark = "demos/okvqa"
options = { questions = "val.jsonl", train_questions = "train.jsonl", pool = 4, shots = 1 }
role = "report"
checkpoints = ["base"]
"""
TEN = ["cat"] * 3 + ["dog"] * 7
FEW = ["black cat", "dog"]
SAID = "The cat, I think.\nQuestion: what else?"


def vqa_lab(folder: Path, few: int, count: int = 10) -> Path:
    """The experiment file of a lab in which the first `few` questions have two answers, not ten."""
    asked = [
        {"question_id": n, "image_id": n, "question": f"what is {n}?", "answers": answers}
        for n, answers in enumerate([FEW] * few + [TEN] * (count - few))
    ]
    shown = [{**asked[-1], "question_id": n, "question": f"who is {n}?"} for n in range(100, 106)]
    for name, lines in (("val", asked), ("train", shown), ("frozen", [{"answer": SAID}])):
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / f"{name}.jsonl").write_text(text)
    file = folder / "vqa.toml"
    file.write_text(EXPERIMENT)
    return file


def record_of(folder: Path) -> tuple[RunDirectory, dict[str, list]]:
    (run,) = runs_of(folder, "vqa")
    (file,) = run.evaluations.glob("test-*/base.parquet")
    return run, read_columns(file, ["item_id", "score", "parts", "facts", "why"])


def test_every_record_names_its_metric_and_its_share_is_told(tmp_path: Path) -> None:
    listening = Noted()
    start(vqa_lab(tmp_path, few=3), root=tmp_path, observer=listening)
    _, found = record_of(tmp_path)
    facts = [json.loads(text) for text in found["facts"]]
    assert [each["eval_mode"] for each in facts] == ["fallback"] * 3 + ["official"] * 7
    # Official: three of ten say "cat", and "the" is no word. Loosely: a part of "black cat" is not
    # "The cat", so that nothing matches.
    assert found["score"] == [0.0] * 3 + [0.9] * 7
    assert {(each["generation"], each["prediction"]) for each in facts} == {(SAID, "The cat")}
    assert found["why"][0] == "the question has 2 answers, not 10" and found["why"][-1] == ""
    warned = [note for note in listening.notes if "fallback" in note]
    assert len(warned) == 1 and "scored 3 of 10 answers (30.0%" in warned[0]


def test_most_questions_without_ten_answers_stop_the_run(tmp_path: Path) -> None:
    with pytest.raises(RunFailure, match=r"scored 6 of 10 answers \(60.0%"):
        start(vqa_lab(tmp_path, few=6), root=tmp_path)
    assert len(record_of(tmp_path)[1]["score"]) == 10
