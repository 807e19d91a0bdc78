"""VQA's accuracy is the original's to the letter; what scores in its place says so."""

from pathlib import Path

import pytest

from assay.labs.demos.outcomes import (
    answers_from_soft_label,
    loose_accuracy,
    official_accuracy,
    outcome_of,
    plain_words,
    vqa,
    without_punctuation,
)
from assay.labs.demos.rewards import earned
from tests.json_lines import json_lines

PICA = {"gpt3_5GT": 54.47, "gpt3_VinVL": 47.78, "gpt3_VinVLTag": 48.36}
"""What the original program prints for the predictions of three systems, in percent."""


def test_every_official_case_of_the_normalisation_agrees(shared: Path) -> None:
    cases = json_lines(shared / "data/vqa/official_normalise_cases.jsonl")
    assert len(cases) == 375
    for case in cases:
        stripped = without_punctuation(case["input"])
        found = {"after_punctuation": stripped, "after_digit_article": plain_words(stripped)}
        assert {"input": case["input"], **found} == case


def test_every_official_case_of_the_metric_agrees(shared: Path) -> None:
    cases = json_lines(shared / "data/vqa/official_metric_cases.jsonl")
    assert len(cases) == 13
    for case in cases:
        found = vqa(case["prediction"], case["answers"])
        assert found.mode == "official"
        assert found.score * 100 == pytest.approx(case["official_accuracy_pct"], abs=1e-12), case


def test_real_predictions_of_three_systems_score_what_the_original_program_says(
    shared: Path,
) -> None:
    rows = json_lines(shared / "data/vqa/okvqa_val.jsonl")
    answers = {row["question_id"]: row["answers"] for row in rows}
    scores: dict[str, list[float]] = {system: [] for system in PICA}
    for line in json_lines(shared / "data/vqa/pica_predictions.jsonl"):
        given = answers[line["question_id"]]
        found = official_accuracy(line["answer"], given)
        scores[line["predictions"]].append(found)
    assert {len(each) for each in scores.values()} == {2523}
    means = {name: round(100 * sum(each) / 2523, 2) for name, each in scores.items()}
    assert means == PICA


def test_ten_answers_follow_from_the_soft_label_of_five_annotators(shared: Path) -> None:
    for row in json_lines(shared / "data/vqa/okvqa_val.jsonl"):
        rebuilt = answers_from_soft_label(row["soft_label"])
        assert rebuilt is not None and sorted(rebuilt) == sorted(row["answers"])
    for row in json_lines(shared / "data/vqa/okvqa_train.jsonl"):
        rebuilt = answers_from_soft_label(row["soft_label"])
        assert rebuilt is not None and len(rebuilt) == 10 and set(rebuilt) == set(row["soft_label"])


def test_unanimous_answers_are_compared_as_they_stand() -> None:
    assert official_accuracy("yes", ["Yes"] * 10) == 0
    assert official_accuracy(" Yes\n", ["Yes"] * 10) == 1
    assert official_accuracy("yes", ["Yes"] * 9 + ["no"]) == 1


@pytest.mark.parametrize(
    ("prediction", "answers", "score"),
    [
        ("black cat", ["cat"], 0.5),
        ("cat", ["Black Cat", "dog"], 0.5),
        ("", ["cat"], 0.0),
    ],
)
def test_the_looser_rule_never_takes_what_is_empty_for_a_match(
    prediction: str, answers: list[str], score: float
) -> None:
    assert loose_accuracy(prediction, answers) == score
    found = vqa(prediction, answers)
    assert (found.score, found.mode) == (score, "fallback")
    assert found.why == f"the question has {len(answers)} answers, not 10"


def test_rewards_name_the_metric_and_abstain_where_there_is_none() -> None:
    official = earned(outcome_of("cat, of course", ["cat"] * 4 + ["dog"] * 6, vqa))
    assert (official.value, official.parts["fallback"]) == (1.0, 0.0)
    assert official.facts["eval_mode"] == "official" and official.facts["prediction"] == "cat"
    fallback = earned(outcome_of("cats", ["cat"], vqa))
    assert (fallback.value, fallback.parts["fallback"]) == (0.5, 1.0)
    assert fallback.facts["eval_mode"] == "fallback" and fallback.why
    nothing = earned(outcome_of("cat", [], vqa))
    assert nothing.value is None and nothing.facts["eval_mode"] == "error"
    assert nothing.why == "no metric: the question has no answers"
