"""The task proves itself: its gold answers score the full reward, other answers do not."""

from pathlib import Path

import pytest

from assay.data.episode import Completion
from assay.data.row import Message, Row
from assay.labs.math.rewards import gold_answer
from assay.labs.math.task import INSTRUCTION
from assay.tasks import task as tasks
from assay.tasks.running import RewardRunner
from assay.tasks.task import BenchmarkOptions

MATH = tasks.task("math")
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def runner():
    with RewardRunner(MATH.rewards["accuracy"], 60.0, workers=1) as runner:
        yield runner


def gsm8k(shared: Path) -> tasks.Benchmark:
    path = str(shared / "data/math/gsm8k_test.jsonl")
    return tasks.benchmark(MATH, "math/gsm8k", BenchmarkOptions({"path": path}))


def test_every_gsm8k_target_scores_one(shared: Path, runner: RewardRunner) -> None:
    items = gsm8k(shared).items
    assert len(items) == 659
    assert sum("," in gold_answer(item) for item in items) == 9
    rewards = runner.score([(item, Completion(MATH.target(item).content)) for item in items])
    assert {reward.value for reward in rewards} == {1.0}
    # The source's own form is accepted too.
    rewards = runner.score([(item, Completion(item.messages[-1].content)) for item in items])
    assert {reward.value for reward in rewards} == {1.0}


def test_shuffled_and_empty_answers_score_nothing(shared: Path, runner: RewardRunner) -> None:
    items = gsm8k(shared).items
    shifted = [*items[1:], items[0]]
    pairs = [
        (item, Completion(MATH.target(other).content))
        for item, other in zip(items, shifted, strict=True)
        if gold_answer(item) != gold_answer(other)
    ]
    assert len(pairs) > 600
    assert {reward.value for reward in runner.score(pairs)} == {0.0}
    empty = runner.score([(item, Completion("")) for item in items])
    assert {reward.value for reward in empty} == {0.0}


def test_the_prompt_asks_for_a_box_and_keeps_the_rows_own_system_text() -> None:
    question, answer = Message("user", "1+1?"), Message("assistant", "#### 2")
    assert MATH.prompt(Row("r", (question, answer))) == (Message("system", INSTRUCTION), question)
    own = (Message("system", "Be kind."), question, answer)
    system, user = MATH.prompt(Row("r", own))
    assert system.content == INSTRUCTION + "\n\nBe kind." and user == question


@pytest.mark.parametrize(
    ("content", "gold", "target"),
    [
        ("2+2 = <<2+2=4>>4\n#### 4", None, "2+2 = 4\nThe final answer is \\boxed{4}."),
        ("So it is \\boxed{4}.", None, "So it is \\boxed{4}."),
        ("Count.", "4", "Count.\nThe final answer is \\boxed{4}."),
        ("", "\\frac{1}{2}", "The final answer is \\boxed{\\frac{1}{2}}."),
    ],
)
def test_the_target_ends_in_the_boxed_gold(content: str, gold: str | None, target: str) -> None:
    messages = (Message("user", "?"), Message("assistant", content))
    assert MATH.target(Row("r", messages, gold=gold or content)) == Message("assistant", target)


@pytest.mark.parametrize(
    ("content", "gold", "target"),
    [
        ("2+2 = 4\n#### 4", "4", "2+2 = 4\nThe final answer is \\boxed{4}."),
        ("So it is \\boxed{4}.", "4", "So it is \\boxed{4}."),
        ("4", "4", "The final answer is \\boxed{4}."),
        ("\\frac{1}{2}", "\\frac{1}{2}", "The final answer is \\boxed{\\frac{1}{2}}."),
        ("Paris, I think.", "", "Paris, I think."),
    ],
)
def test_where_no_gold_is_given_the_last_assistant_message_holds_it(
    runner: RewardRunner, content: str, gold: str, target: str
) -> None:
    row = Row("r", (Message("user", "?"), Message("assistant", content, reasoning="hm")))
    assert gold_answer(row) == gold
    assert MATH.target(row) == Message("assistant", target, reasoning="hm")
    assert content not in "".join(message.content for message in MATH.prompt(row))
    right, wrong = runner.score([(row, Completion(target)), (row, Completion("\\boxed{7}"))])
    assert (right.value, wrong.value) == ((1.0, 0.0) if gold else (None, None))


def test_the_benchmark_names_the_checker_with_its_version(shared: Path) -> None:
    benchmark = gsm8k(shared)
    assert benchmark.checker == "math rules 10 over math-verify 0.9.0"
    assert benchmark.score is MATH.rewards["accuracy"]
