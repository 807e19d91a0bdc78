"""Whoever answers, an evaluation is resumed by chunk, and what has no answer is an abstention."""

from pathlib import Path

import pytest

from assay.data.episode import Completion, Reward
from assay.data.row import Row
from assay.errors import RunFailure
from assay.lab.evaluate.run_evaluation import run_evaluation
from assay.lab.monitor.observer import Silent
from assay.runs.records import RecordWriter, read_columns
from assay.tasks.running import RewardRunner
from tests.lab.evaluate.scripted_answerer import ScriptedAnswerer, made_evaluation


class Killed(BaseException):
    """Ends the process at an instant, as far as an evaluation can tell."""


def right(row: Row, completion: Completion) -> Reward:
    return Reward(float(completion.text == row.gold))


def script(item: Row, repeat: int) -> str:
    if item.id == "i3" and repeat == 1:
        raise RuntimeError("lost")
    return "42" if int(item.id[1:]) % 2 else "41"


def evaluate(folder: Path, answerer: ScriptedAnswerer) -> Path:
    evaluation = made_evaluation(right, items=5, repeats=2)
    with RewardRunner(right, sandbox="limits-only") as runner:
        return run_evaluation(evaluation, answerer, "base", folder, Silent(), runner)


@pytest.mark.parametrize("at", [1, 4])
def test_what_a_killed_evaluation_recorded_is_not_asked_again(tmp_path: Path, at: int) -> None:
    whole = evaluate(tmp_path / "whole", ScriptedAnswerer(script, chunk=3))
    first, second = (ScriptedAnswerer(script, chunk=3) for _ in range(2))
    kept, calls = RecordWriter.write_chunk, []

    def deadly(*given: object) -> None:
        kept(*given)  # type: ignore[arg-type]
        calls.append(given)
        if len(calls) == at:
            raise Killed

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(RecordWriter, "write_chunk", deadly)
        evaluate(tmp_path / "killed", first)
    assert first.closed
    file = evaluate(tmp_path / "killed", second)
    assert len(first.asked) == min(3 * at, 10)
    assert first.asked + second.asked == [(n, repeat) for n in range(5) for repeat in range(2)]
    columns = ["sample_id", "output", "score", "why", "ended", "prompt_tokens"]
    assert read_columns(file, columns) == read_columns(whole, columns)
    third = ScriptedAnswerer(script, chunk=3)
    assert evaluate(tmp_path / "killed", third) == file and not third.asked


def test_an_answer_that_did_not_come_is_an_abstention_that_says_why(tmp_path: Path) -> None:
    file = evaluate(tmp_path / "run", ScriptedAnswerer(script))
    columns = read_columns(file, ["item_id", "repeat", "score", "why"])
    unscored = [line for line in zip(*columns.values(), strict=True) if line[2] is None]
    assert unscored == [("i3", 1, None, "script: lost")]


def test_an_evaluation_without_one_score_fails_keeps_the_answers_and_asks_anew(tmp_path: Path):
    def lost(item: Row, repeat: int) -> str:
        raise RuntimeError("lost")

    with pytest.raises(RunFailure, match=r"none of 10 answers has a score.*script: lost"):
        evaluate(tmp_path, ScriptedAnswerer(lost))
    (kept,) = tmp_path.glob("*/base.unscored/*.parquet")
    assert read_columns(kept, ["score"])["score"] == [None] * 10
    assert not [*tmp_path.glob("*/base.parquet"), *tmp_path.glob("*/base.parts")]
    again = ScriptedAnswerer(script)
    assert evaluate(tmp_path, again).exists() and len(again.asked) == 10
