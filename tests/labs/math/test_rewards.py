"""Right answers score 1, wrong or missing ones 0, and what cannot be judged abstains."""

import functools
from dataclasses import replace
from pathlib import Path

import pytest

from assay.data.episode import Completion, Reward
from assay.labs.math.rewards import REWARD_MAXIMUM, REWARDS, accuracy
from assay.labs.math.sentences import LONGEST_FACT
from assay.tasks.running import RewardRunner, WorkerReward
from tests.labs.math.many import row
from tests.rl.test_trl_oracle import trl_rows

RIGHT = Reward(1.0, {"format": 1.0, "answer": 1.0}, outcome="right")
WRONG = Reward(0.0, {"format": 1.0, "answer": 0.0}, outcome="wrong")
NOTHING = Reward(0.0, {"format": 0.0, "answer": 0.0}, "no final answer", "no answer")
UNREAD = replace(NOTHING, why="the final answer cannot be parsed", outcome="unparsable")


def agreed(reward: Reward) -> Reward:
    """As math-verify judges by itself."""
    return replace(reward, parts={**reward.parts, "differs_from_math_verify": 0.0})


def said(answer: str, reward: Reward) -> Reward:
    """With the final answer among the facts."""
    return replace(reward, facts={"answer": answer})


@functools.cache
def warm() -> RewardRunner:
    """One start of the worker for all tests; it ends with them."""
    return RewardRunner(accuracy, 60.0, workers=1)


def test_accuracy_agrees_with_trl(shared: Path) -> None:
    rows = trl_rows(shared, "accuracy_reward")
    assert len(rows) == 4
    pairs = [(row(r["input"]["solution"]), Completion(r["input"]["completion"])) for r in rows]
    values = [reward.value for reward in warm().score(pairs)]
    # TRL abstains where it cannot read a gold answer in words; here "forty two" is 42.
    told = [(v, r["expected"]) for v, r in zip(values, rows, strict=True)]
    assert [value for value, expected in told if expected not in (None, value)] == []


@pytest.mark.parametrize(
    ("gold", "text", "reward"),
    [
        ("18", r"\boxed{18}", said("18", RIGHT)),
        ("... #### 2,125", "#### 2,125.", said("2125", RIGHT)),
        ("18", "6 and 12. So the answer is 18.", said("18", RIGHT)),
        ("18", "6 and 12 make 18", NOTHING),
        ("", r"\boxed{18}", Reward(None, why="the row has no gold answer")),
    ],
)
def test_plain_numbers_need_no_worker(gold: object, text: str, reward: Reward) -> None:
    assert accuracy.ask(row(gold), Completion(text)) == reward


@pytest.mark.parametrize(
    ("gold", "text", "reward"),
    [
        ("0.5", r"\boxed{\dfrac{1}{2}}", said(r"\frac{1}{2}", agreed(RIGHT))),
        ("18", "#### 18 eggs", said("18 eggs", agreed(RIGHT))),
        (r"\frac12", "no box", NOTHING),
        ("18", r"\boxed{forty two}", said("42", agreed(WRONG))),
        ("18", r"\boxed{\foo}", said(r"\foo", agreed(UNREAD))),
    ],
)
def test_the_rest_is_settled_in_a_worker(gold: str, text: str, reward: Reward) -> None:
    assert warm().score([(row(gold), Completion(text))]) == [reward]


HOSTILE = {
    "a tower of powers": r"9^{9^{9^{9}}}",
    "a giant factorial": r"99999999999!",
    "deep nesting": "{" * 4_000 + "1" + "}" * 4_000,
    "deep roots": r"\sqrt{" * 800 + "1" + "}" * 800,
    "a million characters": "1+" * 500_000 + "1",
    "a long sum": "1+" * 4_900 + "1",
    "a catastrophe for the grammar": r"\frac{" * 900 + "1",
    "brackets that never close": r"\left(" * 1_600,
    "a number of 50 MB": "7" * 50_000_000,
    "a power in a chain": r"x = 2^{3^{4^{5^6}}} = 42",
}
WAYS = (
    "a tower of powers",
    "deep nesting",
    "a million characters",
    "a catastrophe for the grammar",
    "a number of 50 MB",
)
"""Never computed, never read, too long, no answer at all, too long to be sent; each of the others
runs into its deadline as the first two do."""


@pytest.mark.parametrize("ways", [WAYS, pytest.param(tuple(HOSTILE), marks=pytest.mark.slow)])
def test_a_model_gains_nothing_by_making_the_checker_give_up(ways: tuple[str, ...]) -> None:
    """Half right is 50 %, whatever the other half does to the checker."""
    half = len(ways)
    golds = ["42", r"\frac{1}{2}"] * half
    texts = golds[:half] + [HOSTILE[way] for way in ways]
    pairs = [
        (row(gold), Completion(f"\\boxed{{{text}}}"))
        for gold, text in zip(golds, texts, strict=True)
    ]
    with RewardRunner(accuracy, 1.0, workers=1) as runner:
        rewards = runner.score(pairs)
        assert [r.value for r in rewards] == [1.0] * half + [0.0] * half, rewards
        assert (runner.scored, runner.abstained_share) == (2 * half, 0.0)
        assert runner.outcomes["right"] == half and runner.outcomes.total() == 2 * half
    assert all(len(str(r.facts.get("answer", ""))) <= LONGEST_FACT for r in rewards)
    outcomes = dict(zip(ways, (r.outcome for r in rewards[half:]), strict=True))
    assert outcomes["a tower of powers"] in ("timed out", "out of memory")
    assert outcomes["a million characters"] == outcomes["a number of 50 MB"] == "unparsable"


def test_a_gold_answer_that_cannot_be_checked_in_time_is_an_abstention() -> None:
    pair = (row(r"9^{9^{9^{9}}}"), Completion(r"\boxed{8^{9^{9^{9}}}}"))
    with RewardRunner(accuracy, 0.3, workers=1) as runner:
        (reward,) = runner.score([pair])
    assert reward.value is None and reward.why.split(":")[0] in ("deadline", "memory")


def test_a_number_that_a_cut_completion_ends_with_may_go_on() -> None:
    text = "So the answer is 1"
    assert accuracy.ask(row("1"), Completion(text)) == said("1", RIGHT)
    assert accuracy.ask(row("1"), Completion(text, ended="length")) == NOTHING
    boxed = accuracy.ask(row("1"), Completion(r"\boxed{1} and", ended="length"))
    assert boxed == said("1", RIGHT)


def test_only_what_follows_the_reasoning_counts() -> None:
    text = r"<think>\boxed{1}</think>\boxed{2}</think> \boxed{3}"
    assert accuracy.ask(row("3"), Completion(text)) == said("3", RIGHT)
    assert accuracy.ask(row("1"), Completion(r"<think>\boxed{1}")) == NOTHING


def test_every_reward_says_its_maximum_by_a_name_that_exists() -> None:
    assert set(REWARD_MAXIMUM) <= set(REWARDS)
    right = Completion("<think>a b c</think> \\boxed{3}", tuple(range(9)))
    for name, reward in REWARDS.items():
        asked = reward.ask(row("3"), right) if isinstance(reward, WorkerReward) else None
        value = (asked or reward(row("3"), right)).value  # type: ignore[union-attr]
        assert value == pytest.approx(REWARD_MAXIMUM.get(name, 1.0), abs=1e-3)
