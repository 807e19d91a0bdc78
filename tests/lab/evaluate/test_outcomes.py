"""What became of answers is counted from the record, and a record of many abstentions is loud."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from assay.data.episode import Completion, Reward
from assay.data.row import Row
from assay.experiment.read_file import read_experiment
from assay.judge.paired import score_range
from assay.lab.evaluate.run_evaluation import run_evaluation
from assay.lab.monitor.observer import Silent
from assay.lab.session.session import Session
from assay.labs.math.rewards import accuracy
from assay.runs.records import error_type, read_columns, recorded_outcomes, scores_of
from assay.runs.run_directory import RunDirectory
from assay.sandbox import isolation
from assay.tasks.running import RewardRunner
from assay.tasks.task import no_error
from tests.lab.evaluate.scripted_answerer import ScriptedAnswerer, made_evaluation
from tests.tiny_labs import make_lab

TOWER = r"\boxed{9^{9^{9^{9}}}}"


def recorded(
    folder: Path,
    texts: Sequence[str],
    gold: str,
    reward: Any,
    deadline: float,
    cut: Sequence[int] = (),
) -> Path:
    """The record of an evaluation with one item for each of the answers; `cut` ended at the limit
    of tokens."""
    evaluation = made_evaluation(reward, len(texts), gold=gold)
    script = ScriptedAnswerer(
        lambda item, _: texts[int(item.id[1:])],
        lambda item: "length" if int(item.id[1:]) in cut else "stop",
    )
    with RewardRunner(reward, deadline, sandbox="limits-only") as runner:
        return run_evaluation(evaluation, script, "base", folder / "run", Silent(), runner)


def test_one_right_of_two_is_half_where_the_other_makes_the_checker_give_up(
    tmp_path: Path,
) -> None:
    """The attack: an abstention would leave the score of the answers that are known."""
    file = recorded(tmp_path, [r"\boxed{42}", TOWER], "42", accuracy, 1.5)
    columns = read_columns(file, ["item_id", "repeat", "score"])
    scores = scores_of(columns["item_id"], columns["repeat"], columns["score"])
    assert (scores.mean, scores.missing) == (0.5, 0)
    found = recorded_outcomes(file)
    assert found.answers == 2 and found.unscored == {} and not found.warnings
    assert found.outcomes["right"] == 1
    assert set(found.outcomes) <= {"right", "timed out", "out of memory"}


def test_truncated_unparsable_and_wrong_answers_are_told_apart(tmp_path: Path) -> None:
    """A cut answer that is right stays right; one that is not is truncated, whatever it says."""
    whole = [r"\boxed{42}", r"\boxed{41}", r"\boxed{x+}", "no box", r"\boxed{41=42}"]
    cut = [r"\boxed{42} and", r"\boxed{41} and", r"\boxed{x+}.", "no b", "The answer is 42"]
    file = recorded(tmp_path, whole + cut, "42", accuracy, 60.0, range(5, 10))
    columns = read_columns(file, ["score", "error", "parts"])
    assert columns["score"] == [1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    assert columns["error"][:5] == ["", "wrong", "unparsable", "no answer", "wrong"]
    assert columns["error"][5:] == ["", *["truncated"] * 4]
    found = recorded_outcomes(file)
    assert found.outcomes["right"] == 2 and found.outcomes["truncated"] == 4
    assert sum('"differs_from_math_verify": 1.0' in text for text in columns["parts"]) == 1


@pytest.mark.parametrize(
    ("reward", "error"),
    [
        (Reward(1.0), ""),
        (Reward(0.0), "truncated"),
        (Reward(0.0, outcome="timed out"), "truncated"),
        (Reward(-0.2, outcome="right"), ""),
        (Reward(None, why="lost"), ""),
    ],
)
def test_any_task_tells_cut_answers_from_wrong_ones(reward: Reward, error: str) -> None:
    row = Row("r", (), gold="42")
    for ended in ("length", "context"):
        assert error_type(no_error, row, Completion("x", (1,), ended), reward) == error
    whole = error_type(no_error, row, Completion("x", (1,)), reward)
    assert whole == reward.outcome.replace("right", "")


def abstains_on_x(row: Row, completion: Completion) -> Reward:
    """A reward that says of some answers that it does not know."""
    return Reward(None, why="lost: x") if completion.text == "x" else Reward(1.0)


@pytest.mark.parametrize(("unknown", "loud"), [(2, False), (3, True)])
def test_a_record_with_many_abstentions_is_loud(tmp_path: Path, unknown: int, loud: bool) -> None:
    texts = ["x"] * unknown + ["y"] * (100 - unknown)
    file = recorded(tmp_path, texts, "42", abstains_on_x, 60.0)
    warnings = recorded_outcomes(file).warnings
    assert len(warnings) == int(loud)
    for each in warnings:
        assert each.startswith(f"{unknown} of 100 answers") and "most often: lost: x" in each
    columns = read_columns(file, ["item_id", "repeat", "score"])
    scores = scores_of(columns["item_id"], columns["repeat"], columns["score"])
    # Both scores: with abstentions as 0, and over what was scored.
    assert (score_range(scores)[0], scores.mean) == ((100 - unknown) / 100, 1.0)


def test_a_session_gives_the_simulators_the_isolation_of_its_experiment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolation, "_chosen", ["namespaces"])
    file = make_lab(tmp_path)
    run = RunDirectory(tmp_path, "tiny", "none")
    for settings, mode in ((['sandbox="limits-only"'], "limits-only"), ([], "namespaces")):
        Session(read_experiment(file, settings), run, 7, Silent())
        assert isolation.chosen_isolation() == mode
