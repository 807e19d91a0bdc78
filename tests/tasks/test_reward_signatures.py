"""Functions of three signatures are rewards; every other one is refused."""

import json
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from assay.data.episode import Completion, Reward, reward_values, row_of, row_values
from assay.data.formats.formats import FileLayout, iter_rows
from assay.data.row import Message, Row
from assay.errors import InputError
from assay.tasks.running import RewardRunner
from assay.tasks.task import is_unsafe, lowest, unsafe
from assay.tasks.user_code import as_reward

QUESTION = (Message("system", "Add."), Message("user", "1 + 1 = ?"))
ROW = Row("r", (*QUESTION, Message("assistant", "2")), gold="2", extra={"solution": "two"})
SAID = Completion("2", (50, 51))


def judged(function: Callable, completion: Completion = SAID) -> Reward:
    return as_reward(function, "f")(ROW, completion)


def test_a_plain_function_gets_texts_and_the_row_in_any_order() -> None:
    seen = []

    def plain(row, prompt, completion, strict=True):
        seen.append((row, prompt, completion, strict))
        return True

    assert judged(plain) == Reward(1.0)
    assert seen == [(ROW, "1 + 1 = ?", "2", True)]


@pytest.mark.parametrize(
    ("said", "value"), [(0.25, 0.25), (False, 0.0), (3, 3.0), (Reward(0.5, why="x"), 0.5)]
)
def test_numbers_and_rewards_are_values(said: object, value: float) -> None:
    assert judged(lambda prompt, completion, row: said).value == value


def test_none_abstains_with_the_name_of_the_function() -> None:
    def shy(prompt, completion, row):
        return None

    assert judged(shy) == Reward(None, why="shy returned None")


def test_assays_own_functions_stay_themselves() -> None:
    def own(row, completion):
        return Reward(1.0)

    assert as_reward(own, "f") is own
    assert judged(partial(lambda row, completion, by: Reward(by), by=0.5)).value == 0.5


def test_a_function_of_trl_gets_lists_of_one_and_the_columns_that_it_names() -> None:
    seen = {}

    def trl(prompts, completions, solution, **columns):
        seen.update(columns, prompts=prompts, completions=completions, solution=solution)
        columns["log_metric"]("length", 1)
        columns["log_extra"]("note", ["short"])
        return [0.5]

    assert judged(trl) == Reward(0.5, {"length": 1.0}, facts={"note": "short"})
    assert seen["prompts"] == [
        [{"role": "system", "content": "Add."}, {"role": "user", "content": "1 + 1 = ?"}]
    ]
    assert seen["completions"] == [[{"role": "assistant", "content": "2"}]]
    assert seen["solution"] == ["two"] and seen["completion_ids"] == [[50, 51]]
    assert judged(lambda completions, solution: [float(len(solution))]).value == 1.0
    assert judged(lambda completion_ids, **kwargs: [len(completion_ids[0])]).value == 2.0


def test_a_function_of_trl_sees_all_turns_of_a_dialogue() -> None:
    turns = (Message("assistant", "a"), Message("user", "go on"), Message("assistant", "b"))
    length = lambda completions: [len(completions[0])]  # noqa: E731
    assert judged(length, Completion("a\nb", messages=turns)).value == 3.0


@pytest.mark.parametrize("said", [1.0, [], [1.0, 1.0]])
def test_another_number_of_values_is_an_abstention(said: object) -> None:
    judge = as_reward(lambda completions: said, "f")
    (reward,) = RewardRunner(judge).score([(ROW, SAID)])
    assert reward.value is None and "not a list of one number" in reward.why


def test_unsafe_and_lowest_are_the_functions_own() -> None:
    @unsafe
    def plain(prompt, completion, row):
        return 1.0

    plain.lowest = -1.0  # type: ignore[attr-defined]
    judge = as_reward(plain, "f")
    assert is_unsafe(judge) and lowest(judge) == -1.0
    assert not is_unsafe(as_reward(lambda prompts, completions: [1.0], "f"))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: 1,
        lambda completion, row: 1,
        lambda row, completion, more: 1,
        lambda prompt, completion, row, more: 1,
        lambda prompts, completions, row: 1,
        "text",
        Reward,
    ],
)
def test_every_other_signature_is_refused_with_those_that_are_taken(wrong: object) -> None:
    with pytest.raises(InputError, match=r"f (takes|is) .*\(prompt, completion, row\) -> flo"):
        as_reward(wrong, "f")  # type: ignore[arg-type]


class Odd(BaseException):
    """What `except Exception` does not catch."""


async def late(row, completion):
    return 1.0


def of(said: object) -> Reward:
    """The reward of an answer for which a function of rows returns `said`."""

    def own(row, completion):
        return said if completion.text == "odd" else Reward(1.0)

    (reward,) = RewardRunner(as_reward(own, "own")).score([(ROW, Completion("odd"))])
    return reward


@pytest.mark.parametrize(
    "said",
    [0.5, Fraction(1, 2), Decimal("0.5"), np.float32(0.5), np.array(0.5), torch.tensor(0.5)],
)
def test_a_number_from_a_reward_of_rows_is_its_value_as_python_has_it(said: object) -> None:
    assert of(said) == Reward(0.5) and type(of(said).value) is float
    assert (of(True).value, of(np.int64(3)).value) == (1.0, 3.0)


def test_numbers_in_a_reward_are_those_that_records_hold() -> None:
    odd = Reward(np.float32(0.5), {"a": np.int64(2)}, facts={"b": torch.tensor(1.5)})  # type: ignore[arg-type]
    assert json.loads(json.dumps(reward_values(of(odd)))) == {
        "value": 0.5, "parts": {"a": 2.0}, "why": "", "outcome": "", "facts": {"b": 1.5},
    }  # fmt: skip


@pytest.mark.parametrize(
    "said",
    [
        *("1", [1.0], (1.0, "why"), {"score": 1.0}, object(), float, 1j, np.array([1.0])),
        *(Reward("1"), Reward(1.0, {"part": None}), Reward(1.0, {"part": "1"})),  # type: ignore
        *(Reward(1.0, None), Reward(1.0, {1: 1.0}), Reward(1.0, why=None)),  # type: ignore
    ],
)
def test_what_is_no_number_costs_one_answer_and_names_the_reward(said: object) -> None:
    assert (of(said).value, of(said).outcome) == (0.0, "checker raised")
    assert "own returned" in of(said).why


@pytest.mark.filterwarnings("error")
def test_a_coroutine_is_no_reward_and_python_warns_of_none() -> None:
    (reward,) = RewardRunner(as_reward(late, "late")).score([(ROW, SAID)])
    assert reward == Reward(
        None, why="exception: late returned coroutine, not a number or a Reward"
    )


@pytest.mark.parametrize("raised", [SystemExit(0), GeneratorExit(), Odd("odd")])
def test_what_would_end_the_process_costs_one_answer(raised: BaseException) -> None:
    def own(row, completion):
        if completion.text == "odd":
            raise raised
        return 1.0

    odd, fine = RewardRunner(as_reward(own, "own")).score([(ROW, Completion("odd")), (ROW, SAID)])
    assert (odd.value, fine.value) == (0.0, 1.0) and type(raised).__name__ in odd.why


def test_ctrl_c_stays_the_users_stop() -> None:
    def own(row, completion):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        RewardRunner(own).score([(ROW, SAID)])


def test_a_function_of_trl_sees_the_columns_under_the_files_own_names(tmp_path: Path) -> None:
    """As TRL 1.16 hands in all columns of the data set but prompt and completion."""
    file = tmp_path / "rows.jsonl"
    record = {"id": 7, "question": "1 + 1 = ?", "result": "2", "level": 3, "answer": "two"}
    file.write_text(json.dumps(record))
    columns = {"prompt": "question", "answer": "result", "said": "answer"}
    (row,) = iter_rows(file, "prompt_answer", FileLayout(columns=columns))
    seen = {}

    def trl(prompts, completions, question, result, answer, level, **others):
        seen.update(others, question=question, result=result, answer=answer, level=level)
        return [1.0]

    assert as_reward(trl, "f")(row_of(row_values(row)), SAID).value == 1.0
    seen = {name: value for name, value in seen.items() if not callable(value)}
    del seen["completion_ids"]
    assert seen == {
        **{name: [value] for name, value in record.items()},
        "gold": ["2"],
        "said": ["two"],
    }


def test_a_column_that_is_missing_is_told_with_those_that_are_there() -> None:
    judge = as_reward(lambda completions, answer, trainer_state: [1.0], "f")
    (reward,) = RewardRunner(judge).score([(ROW, SAID)])
    assert "'answer', 'trainer_state', and the columns here are: completion_ids, com" in reward.why
