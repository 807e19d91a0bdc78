"""The rewards of the math task: is the final answer the gold one?

Plain numbers are settled here exactly; everything else goes to math-verify in a worker.

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
from assay.tasks.math.answers import delimited, final_answer, number
from assay.tasks.running import WorkerReward
from assay.tasks.task import RewardFunction
from assay.tasks.text_rewards import CLOSE, cosine_scaled, repetition_penalty, think_format

COMPARE = "assay.tasks.math.verify:compare"


def gold_answer(row: Row) -> str:
    r"""What follows `####` or stands in `\boxed{}` in the gold, else all of it; "" for none."""
    gold = "" if row.gold is None else str(row.gold)
    return final_answer(gold) or gold.strip()


def ask_accuracy(row: Row, completion: Completion) -> Reward | Mapping[str, Any]:
    """The reward, where two plain numbers or a missing answer decide it; else what to compare."""
    gold, answer = gold_answer(row), final_answer(completion.text)
    if not gold:
        return Reward(None, why="the row has no gold answer")
    wanted, given = number(gold), number(answer or "")
    if wanted is not None:
        if answer is None:
            return read_accuracy(row, completion, None)
        whole = given is not None and given.denominator == wanted.denominator == 1
        if given == wanted or whole:
            return read_accuracy(row, completion, _verdict(given == wanted))
    # Asked without an answer too: the worker finds out whether the gold can be read at all.
    return {"gold": delimited(gold), "answer": delimited(answer) if answer else ""}


def _verdict(equal: bool) -> dict[str, bool]:
    return {"equal": equal, "gold_read": True, "answer_read": True}


def read_accuracy(row: Row, completion: Completion, verdict: Mapping[str, bool] | None) -> Reward:
    """The reward from `verify.compare`'s verdict; None stands for a missing answer.

    Parts: format (there is a final answer that can be read) and answer (it is right). Abstains when
    the gold answer cannot be read.
    """
    if verdict is not None and not verdict["gold_read"]:
        return Reward(None, why=f"the gold answer cannot be parsed: {gold_answer(row)[:80]}")
    if verdict is None or final_answer(completion.text) is None:
        return Reward(0.0, {"format": 0.0, "answer": 0.0}, "no final answer")
    readable, equal = float(verdict["answer_read"]), float(verdict["equal"])
    why = "" if readable else "the final answer cannot be parsed"
    return Reward(equal, {"format": readable, "answer": equal}, why)


accuracy = WorkerReward(COMPARE, ask_accuracy, read_accuracy)
"""1 when the last boxed or `####` answer equals the gold answer, else 0."""


def _after_reasoning(completion: Completion) -> Completion:
    return replace(completion, text=completion.text.rpartition(CLOSE)[2])


def _ask_reasoning(row: Row, completion: Completion) -> Reward | Mapping[str, Any]:
    if CLOSE not in completion.text:
        return Reward(0.0, {"format": 0.0, "answer": 0.0}, "the reasoning does not end")
    return ask_accuracy(row, _after_reasoning(completion))


def _read_reasoning(row: Row, completion: Completion, value: Any) -> Reward:
    return read_accuracy(row, _after_reasoning(completion), value)


reasoning_accuracy = WorkerReward(COMPARE, _ask_reasoning, _read_reasoning)
"""As `accuracy`, on the text after the last `</think>` only; 0 without that tag (TRL)."""

REWARDS: Mapping[str, RewardFunction] = {
    "accuracy": accuracy,
    "reasoning_accuracy": reasoning_accuracy,
    "cosine": cosine_scaled(accuracy, max_length=1024),
    "think_format": think_format,
    "repetition": repetition_penalty(),
}
REWARD_MAXIMUM: Mapping[str, float] = {"repetition": 0.0}
