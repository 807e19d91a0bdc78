"""Checks of mathematical problems: golds that fail, questions trained on, absent questions."""

import json
from pathlib import Path

import pytest

from assay.data.renderings.rendering import Renderer
from assay.errors import InputError
from assay.experiment.data_tables import DataSpec
from assay.experiment.tables import EvaluateSpec
from assay.lab.data.prepare import DataSet, prepare
from assay.lab.models.language_encoder import LanguageEncoder
from assay.tasks.task import task
from tests.data.chat import tokenizer
from tests.lab.sound_lab import add_row, found, look, make_sound_lab

QUESTION = r"What is $\frac{1}{2} + x$ for $x = %d$?"
SPACED = r"What is \(\dfrac{1}{2}+x\)  for \(x\,=\,%d\)?"
ITEMS = [{"problem": QUESTION % n, "answer": rf"\frac{{{2 * n + 1}}}{{2}}"} for n in range(6)]
ENCODER = LanguageEncoder(Renderer(tokenizer("chatml"), "hermes"), frozenset())


def write(file: Path, items: list[dict]) -> None:
    lines = (json.dumps({"id": n, **item}) for n, item in enumerate(items))
    file.write_text("".join(line + "\n" for line in lines))


def test_failing_golds_are_listed_by_id_and_line_and_respaced_questions_are_found(
    tmp_path: Path,
) -> None:
    lab = make_sound_lab(tmp_path)
    write(lab / "items.jsonl", [*ITEMS[:4], {**ITEMS[4], "answer": r"\frac{9}{"}, ITEMS[5]])
    for n in range(4):  # of which some are on the dev side
        answer = ITEMS[n]["answer"]
        add_row(lab / "sums.jsonl", SPACED % n, rf"\boxed{{{answer}}}", f"added{n}", gold=answer)
    report = look(
        lab,
        "evaluate.test.benchmark=math/math500",
        'evaluate.test.options={ path = "items.jsonl" }',
    )
    failing = found(report, "evaluate.test: gold answers do not earn the full reward")
    assert failing.severity == "error"
    assert "1 of 6 (16.7%) below 1: 4 (items.jsonl:5); " in failing.evidence
    shared = found(report, "data.sums is trained on and holds questions of evaluate.test")
    assert shared.severity == "error"
    assert "training rows, 0 of them word for word: added" in shared.evidence


def prepared(folder: Path, *evaluations: EvaluateSpec) -> DataSet:
    write(folder / "train.jsonl", [*ITEMS[:2], {"problem": SPACED % 3, "answer": "3.5"}])
    write(folder / "test.jsonl", ITEMS[1:])
    spec = DataSpec(source="path:train.jsonl", format="math", disjoint_from=("math/math500",))
    evaluated = {str(n): each for n, each in enumerate(evaluations)}
    return prepare("train", spec, task("math"), ENCODER, folder, evaluated)


def test_a_set_is_kept_apart_from_a_benchmark_by_the_options_of_its_evaluation(
    tmp_path: Path,
) -> None:
    table = EvaluateSpec(
        benchmark="math/math500",
        role="report",
        checkpoints=("base",),
        options={"path": "test.jsonl"},
    )
    made = prepared(tmp_path, table)
    assert [row.id for row in made.train] == ["0"]
    assert sorted(id_ for ids in made.dropped.values() for id_ in ids) == ["1", "2"]
    assert all("math/math500" in reason for reason in made.dropped)


def test_a_benchmark_that_no_evaluation_places_is_refused(tmp_path: Path) -> None:
    said = r"disjoint_from: math/math500 has neither path nor hf \(add an \[evaluate.NAME\] table"
    with pytest.raises(InputError, match=said):
        prepared(tmp_path)
