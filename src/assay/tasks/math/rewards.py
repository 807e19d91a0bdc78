"""The rewards of the math task: is the final answer the gold one?

Plain numbers are settled here exactly; everything else goes to `judging`, in a worker. An answer
that makes the worker give up is a wrong answer (`tasks.no_verdict`).

  reward              full   rule
  accuracy            1.0    the last boxed or `####` answer equals the gold answer
  reasoning_accuracy  1.0    the same, in the text after the last `</think>` only
  cosine              1.0    accuracy by length: 0.5 to 1 if right, -1 to -0.5 if wrong, 1024 tokens
  think_format        1.0    `tasks.text_rewards`; says nothing about the answer
  repetition          0.0    `tasks.text_rewards`, trigrams, down to -1
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from assay.data.episode import Completion, Reward
from assay.data.row import Row
from assay.sandbox.limits import Outcome
from assay.tasks.math.answers import final_answer, is_bare, number
from assay.tasks.no_verdict import completion_of, earned
from assay.tasks.running import WorkerReward
from assay.tasks.task import RewardFunction
from assay.tasks.text_rewards import CLOSE, cosine_scaled, repetition_penalty, think_format

JUDGE = "assay.tasks.math.judging:judge"
LONGEST_ANSWER = 10_000
"""Characters; a longer final answer is not read, unless the gold answer is as long."""

RIGHT, WRONG = "right", "wrong"
NO_ANSWER, UNPARSABLE = "no answer", "unparsable"
READ = frozenset({RIGHT, WRONG, NO_ANSWER, UNPARSABLE})
"""The outcomes of an answer on which the comparison did not fail."""
RULES = 3
"""The version of the rules in `judging`, for fingerprints."""
DIFFERS = "differs_from_math_verify"
"""The part that is 1 where math-verify's own verdict is another than the reward's."""


def gold_answer(row: Row) -> str:
    r"""What follows `####` or stands in `\boxed{}` in the gold, else all of it; "" for none.

    A row without a gold has its answer in the assistant message that it ends with: the final answer
    there, else the whole message where that is an answer alone, such as `9`.
    """
    if row.gold is not None:
        gold = str(row.gold)
        return final_answer(gold) or gold.strip()
    said = "".join(message.content for message in row.messages[len(row.prompt) :]).strip()
    return final_answer(said) or (said if is_bare(said) else "")


def gold_completion(row: Row) -> Completion:
    """The gold answer as the final answer of a completion."""
    return completion_of(f"#### {' '.join(gold_answer(row).split())}")


def ask_accuracy(row: Row, completion: Completion) -> Reward | Mapping[str, Any]:
    """The reward, where two plain numbers or a missing answer decide it; else what to compare."""
    gold, answer = gold_answer(row), final_answer(completion.text)
    if not gold:
        return Reward(None, why="the row has no gold answer")
    if answer is not None and len(answer) > max(LONGEST_ANSWER, 2 * len(gold)):
        return unreadable(f"the final answer has {len(answer)} characters")
    wanted, given = number(gold), number(answer or "")
    if wanted is not None:
        if answer is None:
            return no_answer()
        whole = given is not None and given.denominator == wanted.denominator == 1
        if given == wanted or whole:
            return verdict(given == wanted)
    # Asked without an answer too: the worker finds out whether the gold can be read at all.
    return {"gold": gold, "answer": answer or ""}


def verdict(equal: bool) -> Reward:
    """The reward of an answer that could be read."""
    parts = {"format": 1.0, "answer": float(equal)}
    return Reward(float(equal), parts, outcome=RIGHT if equal else WRONG)


def no_answer() -> Reward:
    """The reward of a text without a final answer."""
    return Reward(0.0, {"format": 0.0, "answer": 0.0}, "no final answer", NO_ANSWER)


def unreadable(why: str) -> Reward:
    """The reward of a final answer that cannot be read."""
    return Reward(0.0, {"format": 0.0, "answer": 0.0}, why, UNPARSABLE)


def read_accuracy(row: Row, completion: Completion, value: Mapping[str, Any]) -> Reward:
    """The reward from `judging.judge`'s verdict.

    Parts: format (there is a final answer that can be read), answer (it is right) and, where
    math-verify came to a verdict, DIFFERS. `why` is the rule that made the difference. Abstains
    when the gold answer cannot be read.
    """
    if not value["gold_read"]:
        return Reward(None, why=f"the gold answer cannot be parsed: {gold_answer(row)[:80]}")
    if final_answer(completion.text) is None:
        return no_answer()
    readable = value["answer_read"]
    found = verdict(value["equal"]) if readable else unreadable("the final answer cannot be parsed")
    if value["math_verify"] is None:
        return found
    differs = value["math_verify"] != value["equal"]
    why = found.why or (f"by the rule: {value['rule']}" if differs else "")
    return replace(found, parts={**found.parts, DIFFERS: float(differs)}, why=why)


def failed_accuracy(row: Row, completion: Completion, failure: Outcome) -> Reward:
    """0 for an answer that made the comparison fail; its `format` is 0 too."""
    return earned(0.0, {"format": 0.0, "answer": 0.0}, failure)


accuracy = WorkerReward(
    JUDGE,
    ask_accuracy,
    read_accuracy,
    failed=failed_accuracy,
    gold=gold_completion,
    outcomes=READ,
)
"""1 when the last boxed or `####` answer equals the gold answer, else 0."""


def _after_reasoning(completion: Completion) -> Completion:
    return replace(completion, text=completion.text.rpartition(CLOSE)[2])


def _ask_reasoning(row: Row, completion: Completion) -> Reward | Mapping[str, Any]:
    if CLOSE not in completion.text:
        return replace(no_answer(), why="the reasoning does not end")
    return ask_accuracy(row, _after_reasoning(completion))


def _read_reasoning(row: Row, completion: Completion, value: Any) -> Reward:
    return read_accuracy(row, _after_reasoning(completion), value)


def _reasoned_gold(row: Row) -> Completion:
    return completion_of(CLOSE + gold_completion(row).text)


reasoning_accuracy = WorkerReward(
    JUDGE,
    _ask_reasoning,
    _read_reasoning,
    failed=failed_accuracy,
    gold=_reasoned_gold,
    outcomes=READ,
)
"""As `accuracy`, on the text after the last `</think>` only; 0 without that tag (TRL)."""

REWARDS: Mapping[str, RewardFunction] = {
    "accuracy": accuracy,
    "reasoning_accuracy": reasoning_accuracy,
    "cosine": cosine_scaled(accuracy, max_length=1024),
    "think_format": think_format,
    "repetition": repetition_penalty(),
}
REWARD_MAXIMUM: Mapping[str, float] = {"repetition": 0.0}
