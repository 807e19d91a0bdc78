"""verl's dumps: items are prompts, repeats are generations, of a conversation the last output."""

import json
from pathlib import Path

import pytest

from assay.data.loaded import DataError
from assay.data.results.readers import read_results
from tests.data.results.produced import FOLDER

DUMPS = FOLDER / "verl"


def lines(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.mark.parametrize("step", [0, 10])
def test_scores_outputs_and_repeats_are_those_of_the_dump(step: int):
    file = DUMPS / "ray_trainer" / f"{step}.jsonl"
    rows = lines(file)
    results = {result.metric: result for result in read_results(file)}
    assert list(results) == ["score", "reward", "acc"]
    answers = results["score"].answers
    assert [a.score for a in answers] == [row["score"] for row in rows]
    assert [a.output for a in answers] == [row["output"] for row in rows]
    assert [a.repeat for a in answers] == [0, 1] * 12
    assert len({a.item for a in answers}) == 12
    assert results["score"].run == f"ray_trainer/{step}"


def test_the_same_question_has_the_same_item_at_every_step_and_in_both_trainers():
    items = {
        frozenset(answer.item for answer in read_results(file)[0].answers)
        for file in DUMPS.glob("*/*.jsonl")
    }
    assert len(items) == 1


def test_the_last_output_of_a_session_is_its_answer():
    file = DUMPS / "v1" / "10.jsonl"
    last = [row for row in lines(file) if row["uid"].endswith("_1")]
    result = read_results(file)[0]
    assert len(lines(file)) == 2 * len(last) == 48
    assert [a.output for a in result.answers] == [row["output"] for row in last]
    assert [a.score for a in result.answers] == [row["score"] for row in last]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"score": 1.0', '"score": "1.0"', ("score", "a string, not a number")),
        ('"score": 1.0', '"points": 1.0', ("score", "missing", "'score'")),
        ('"score": 1.0', '"score": NaN', ("malformed JSON", "NaN")),
        ('"input": "user', '"inptu": "user', ("input", "missing")),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, old: str, new: str, words: tuple[str, ...]):
    texts = (DUMPS / "ray_trainer" / "10.jsonl").read_text().splitlines()
    number = next(n for n, text in enumerate(texts) if n and old in text)
    texts[number] = texts[number].replace(old, new)
    (tmp_path / "10.jsonl").write_text("\n".join(texts) + "\n")
    with pytest.raises(DataError) as refusal:
        read_results(tmp_path / "10.jsonl")
    wanted = (f"10.jsonl:{number + 1}", *(word for word in words if word != "'score'"))
    assert all(word in str(refusal.value) for word in wanted), refusal.value
