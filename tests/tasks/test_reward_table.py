"""Reward tables: what parts come to together, what they wait for, and what is never scored."""

import os
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from assay.data.episode import Completion, Reward
from assay.data.row import Message, Row
from assay.errors import InputError
from assay.experiment.reward_tables import RewardPart
from assay.experiment.tables import EvaluateSpec
from assay.lab.session.reward_parts import full_reward, reward_of, table_part, with_options
from assay.labs.math.task import TASK
from assay.runs.judgement_journal import JudgementJournal
from assay.tasks.judge_reward import JudgeReward
from assay.tasks.reward_table import Condition, RewardTable, TablePart
from assay.tasks.running import RewardRunner
from tests.tasks.reward_faults import padded

ROW = Row("r", (Message("user", "3 + 4 = ?"),), gold="7")
QUALITY = """
[reward]
correct    = { kind = "math.accuracy", value = 100, when = { unfinished = 0.0 } }
unfinished = { kind = "text.truncated", value = -10 }
repeated   = { kind = "text.repeats", weight = 0 }
language   = { kind = "text.one_script", value = 5 }

[reward.length]
kind = "text.length_bonus"
value = 10
options = { start = 620, rate = 2.3 }
when = { repeated = 0 }
"""


def spec_of(text: str) -> Any:
    table = {"data": "d", "role": "report", "checkpoints": ["base"], **tomllib.loads(text)}
    return EvaluateSpec.model_validate(table).reward


def score(text: str, *said: Completion) -> list[Reward]:
    made = reward_of(TASK, spec_of(text), Path())
    with RewardRunner(made, sandbox="limits-only") as runner:
        return runner.score([(ROW, completion) for completion in said])


def test_the_quality_stage_is_a_table() -> None:
    tokens = tuple(range(1220))
    plain = Completion(r"so \boxed{7}", tokens)
    looped = Completion(r"again, again, again, again, again, \boxed{7}", tokens)
    mixed = Completion(r"so 七 \boxed{7}", tokens[:620])
    cut = Completion("so", tokens, "length")
    bonus = 10 * (1 - 2.718281828459045 ** (-2.3 * 600 / 600))
    values = [reward.value for reward in score(QUALITY, plain, looped, mixed, cut)]
    assert values == pytest.approx([105 + bonus, 105, 100, -10 + bonus + 5])
    assert full_reward(TASK, spec_of(QUALITY), Path()) == pytest.approx(115)


def value(number: float | None, why: str = "") -> Any:
    return lambda row, completion: Reward(number, why=why, facts={"why": why})


def table(**parts: TablePart) -> RewardTable:
    return RewardTable(parts)


def judged(reward: RewardTable, texts: Sequence[str] = ("x",), **options: Any) -> list[Reward]:
    with RewardRunner(reward, **options) as runner:
        return runner.score(
            [(ROW, Completion(text, id=f"1/r#{n}")) for n, text in enumerate(texts)]
        )


@pytest.mark.parametrize(
    ("wanted", "met"),
    [
        ({"equal": 0.1 + 0.2}, [0.3]),
        ({"above": 0.3}, [0.5, 1.0]),
        ({"above": 0.0, "below": 0.5}, [0.3]),
    ],
)
def test_a_condition_is_met_at_its_value_or_between_its_bounds(wanted: dict, met: list) -> None:
    condition = Condition("other", **wanted)
    assert [v for v in (0.0, 0.3, 0.5, 1.0) if condition.met(v)] == met


def said(outcome: str, number: float = 0.0) -> Any:
    return lambda row, completion: Reward(number, outcome=outcome)


def test_a_condition_on_outcomes_asks_what_became_of_the_answer() -> None:
    late = Condition("answer", outcomes=("timed out", "checker raised"))
    punished = TablePart(value(1.0), scale=-3.0, when=(late,), same="1")
    for outcome, earned in (("timed out", -3.0), ("checker raised", -3.0), ("wrong", 0.0)):
        reward = table(answer=TablePart(said(outcome), same="a"), late=punished)
        assert [each.value for each in judged(reward)] == [earned]
    low = Condition("answer", below=0.5, outcomes=("wrong",))
    assert [low.met(v, o) for v, o in ((0.0, "wrong"), (1.0, "wrong"), (0.0, ""))] == [True, 0, 0]
    # A part that was not scored has no outcome.
    never = TablePart(said("timed out"), when=(Condition("no", equal=1),), same="n")
    reward = table(no=TablePart(value(0.0), same="0"), answer=never, late=punished)
    assert [each.value for each in judged(reward)] == [0.0]


def test_the_maximum_knows_that_only_a_right_answer_earns_the_full_value() -> None:
    right = TablePart(value(1.0), scale=10.0, same="right")

    def beside(outcomes: tuple[str, ...], scale: float) -> float:
        when = (Condition("right", outcomes=outcomes),)
        return table(right=right, bonus=TablePart(value(1.0), scale, when, same="b")).maximum

    assert beside(("timed out",), -1.0) == 10.0
    assert beside(("right",), 4.0) == 14.0
    assert beside(("right",), -4.0) == 10.0
    assert beside(("wrong",), 4.0) == 10.0
    assert beside(("wrong",), 12.0) == 12.0


def test_conditions_are_on_what_the_other_kind_gave_and_chain() -> None:
    reward = table(
        third=TablePart(value(5.0), when=(Condition("second", equal=0),), same="3"),
        second=TablePart(value(9.0), when=(Condition("first", above=10),), same="2"),
        first=TablePart(value(1.0), scale=100.0, same="1"),
    )
    (found,) = judged(reward)
    assert found.value == 105.0, "the second is 0, as its condition was not met"
    assert found.parts == {
        "third": 5.0,
        "second": 0.0,
        "first": 1.0,
        "third/met": 1.0,
        "second/met": 0.0,
    }
    assert found.facts == {"third/why": "", "first/why": ""}


def counted(calls: list[str], value: float) -> JudgeReward:
    """A judge that notes the texts that it judges."""

    def count(batch: Any, helpers: Any) -> list[Reward]:
        calls.extend(completion.text for _, completion in batch)
        return [Reward(value)] * len(batch)

    return JudgeReward(count)


def test_a_part_that_abstains_makes_the_whole_abstain_and_what_waits_for_it_is_not_scored() -> None:
    calls: list[str] = []
    judge = counted(calls, 1.0)
    reward = table(
        judge=TablePart(judge, when=(Condition("right", equal=1),), same="judge"),
        right=TablePart(
            lambda row, c: Reward(None, why="no gold") if c.text == "?" else Reward(float(c.text)),
            same="right",
        ),
    )
    rewards = judged(reward, ("1", "0", "?", "1"))
    assert [each.value for each in rewards] == [2.0, 0.0, None, 2.0]
    assert rewards[2].why == "right: no gold" and calls == ["1", "1"]


def test_parts_alike_in_kind_and_options_are_scored_once(tmp_path: Path) -> None:
    calls: list[str] = []
    judge = counted(calls, 0.5)
    reward = table(
        one=TablePart(judge, when=(Condition("is_a", equal=1),), same="judge"),
        is_a=TablePart(lambda row, c: Reward(float(c.text == "a")), same="is_a"),
        two=TablePart(judge, scale=10.0, same="judge"),
    )
    journal = JudgementJournal(tmp_path / "j.jsonl", "hash")
    first = judged(reward, ("a", "b"), journal=journal)
    assert [each.value for each in first] == [0.5 + 1 + 5, 5.0] and sorted(calls) == ["a", "b"]
    assert judged(reward, ("a", "b"), journal=journal) == first and len(calls) == 2


def test_the_maximum_knows_that_conditions_exclude_each_other() -> None:
    def low(number: float) -> Any:
        made = value(0.0)
        made.lowest = number
        return made

    right = TablePart(value(1.0), scale=10.0, same="right")
    brief = TablePart(value(1.0), scale=3.0, when=(Condition("right", equal=1),), same="brief")
    tried = TablePart(value(1.0), scale=12.0, when=(Condition("right", equal=0),), same="tried")
    assert table(right=right, brief=brief).maximum == 13.0
    assert table(right=right, brief=brief, tried=tried).maximum == 13.0
    assert table(right=right, tried=tried).maximum == 12.0
    penalty = TablePart(low(-1.0), scale=2.0, maximum=0.0, same="penalty")
    assert table(right=right, penalty=penalty).maximum == 10.0
    sign = TablePart(low(-1.0), scale=-2.0, maximum=0.0, same="sign")
    assert table(right=right, sign=sign).maximum == 12.0
    partly = TablePart(value(1.0), scale=100.0, when=(Condition("right", above=0.3, below=0.6),))
    assert table(right=right, partly=partly).maximum == pytest.approx(106.0)


def test_options_reach_the_reward_that_they_are_of() -> None:
    two = '[reward]\nbonus = { kind = "text.repetition", options = { size = 1, penalty = -4.0 } }\n'
    (found,) = score(two, Completion("a a", (5, 5)))
    assert found.value == -2.0
    curve = '[reward]\nshort = { kind = "cosine", options = { max_length = 2 }, value = 2 }\n'
    at_full, beyond = score(curve, *(Completion(r"\boxed{7}", (0,) * n) for n in (2, 1)))
    assert (at_full.value, beyond.value) == (pytest.approx(1.0), pytest.approx(1.5))


def test_options_reach_a_reward_in_a_worker() -> None:
    bound = with_options("padded", padded, {"size": 3, "mark": "+"})
    with RewardRunner(bound, sandbox="limits-only") as runner:
        rewards = runner.score([(ROW, Completion("x"))])
    assert rewards[0].value == 3.0 and rewards[0].why.startswith("+ ")
    assert rewards[0].why != f"+ {os.getpid()}"


def test_an_option_that_a_reward_does_not_have_or_take_is_refused() -> None:
    with pytest.raises(InputError, match=r"options.sizes: 'padded' has no option 'sizes' .*size"):
        with_options("padded", padded, {"sizes": 3})
    with pytest.raises(InputError, match=r"options.size: expected an integer, got '3'"):
        with_options("padded", padded, {"size": "3"})


def test_the_full_reward_of_a_judge_is_what_it_says(tmp_path: Path) -> None:
    lines = (
        "from assay.data.episode import Reward\nfrom assay.tasks.judge_reward import JudgeReward\n"
    )
    lines += "def judge(batch, helpers):\n    return [Reward(7.0)] * len(batch)\n"
    lines += "graded = JudgeReward(judge, maximum=10.0)\n"
    (tmp_path / "grades.py").write_text(lines)
    part = RewardPart(kind="path:grades.py:graded", value=5.0)
    made = table_part(TASK, part, tmp_path)
    assert (made.maximum, made.scale) == (10.0, 0.5)
    assert full_reward(TASK, "path:grades.py:graded", tmp_path) == 10.0
