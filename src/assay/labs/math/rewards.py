"""The rewards of the math task: is the final answer the gold one?

Plain numbers are settled here exactly; everything else goes to `judging`, in a worker. An answer
that makes the worker give up is a wrong answer (`tasks.no_verdict`).

  reward              full   rule
  accuracy            1.0    the final answer equals the gold answer
  olympiad            1.0    the same by OlympiadBench's rules, with a row's tolerance and unit
  cosine              1.0    accuracy by length: 0.5 to 1 if right, -1 to -0.5 if wrong, 1024 tokens
  think_format        1.0    `tasks.text_rewards`; says nothing about the answer
  repetition          0.0    `tasks.text_rewards`, trigrams, down to -1
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from assay.data.episode import CUT, Completion, Reward
from assay.data.row import Row
from assay.labs.math.sentences import canonical, final_answer, is_bare, number, stated_answer
from assay.sandbox.limits import CallOutcome
from assay.tasks.no_verdict import completion_of, earned
from assay.tasks.running import WorkerReward
from assay.tasks.task import RewardFunction
from assay.tasks.text_rewards import CLOSE, OPEN, cosine_scaled, repetition_penalty, think_format

JUDGE = "assay.labs.math.judging:judge"
OLYMPIAD_JUDGE = "assay.labs.math.olympiadbench_judge:judge"
LONGEST_ANSWER = 10_000
"""Characters; a longer final answer is not read, unless the gold answer is as long."""

LONGEST_QUESTION = 4_000

RIGHT, WRONG = "right", "wrong"
NO_ANSWER, UNPARSABLE = "no answer", "unparsable"
READ = frozenset({RIGHT, WRONG, NO_ANSWER, UNPARSABLE})
"""The outcomes of an answer on which the comparison did not fail."""
RULES = 10
"""The version of the rules here and in `judging`, for fingerprints."""
DIFFERS = "differs_from_math_verify"
"""The part that is 1 where math-verify's own verdict is another than the reward's."""
ANSWER = "answer"
"""The fact that holds the final answer."""


def gold_answer(row: Row) -> str:
    r"""What follows `####` or stands in `\boxed{}` in the gold, else all of it; "" for none.

    A row without a gold has its answer in the assistant message that it ends with: the final answer
    there, else the whole message where that is an answer alone, such as `9`.
    """
    if row.gold is not None:
        gold = str(row.gold)
        return final_answer(gold) or gold.strip()
    text = "".join(message.content for message in row.messages[len(row.prompt) :]).strip()
    return final_answer(text) or (text if is_bare(text) else "")


def gold_completion(row: Row) -> Completion:
    """The gold answer as the final answer of a completion."""
    return completion_of(f"#### {' '.join(gold_answer(row).split())}")


def answer_of(completion: Completion) -> str | None:
    """The final answer of a completion: boxed, after `####`, or a plain number that it states.

    What stands in a thought is none, closed or not: `<think>` may have been in the prompt. A number
    without a box that ends a completion that was cut may go on, and is none.
    """
    text = completion.text.rpartition(CLOSE)[2].partition(OPEN)[0]
    answer = final_answer(text)
    return answer if answer or completion.ended in CUT else stated_answer(text)


def with_answer(reward: Reward, answer: str | None) -> Reward:
    """The reward with the final answer among its facts, where there is one."""
    if not answer:
        return reward
    return replace(reward, facts={**reward.facts, ANSWER: canonical(answer)})


def ask_accuracy(row: Row, completion: Completion) -> Reward | Mapping[str, Any]:
    """The reward, where two plain numbers or a missing answer decide it; else what to compare."""
    gold, answer = gold_answer(row), answer_of(completion)
    if not gold:
        return Reward(None, why="the row has no gold answer")
    if answer is not None and len(answer) > max(LONGEST_ANSWER, 2 * len(gold)):
        why = f"the final answer has {len(answer)} characters"
        return with_answer(unreadable(why, UNPARSABLE), answer)
    wanted, value = number(gold), number(answer or "")
    if wanted is not None:
        if answer is None:
            return unreadable()
        whole = value is not None and value.denominator == wanted.denominator == 1
        if value == wanted or whole:
            return with_answer(verdict(value == wanted), answer)
    # Asked without an answer too: the worker finds out whether the gold can be read at all.
    texts = (message.content for message in reversed(row.prompt) if message.role == "user")
    question = next(texts, "")[:LONGEST_QUESTION]
    return {"gold": gold, "answer": answer or "", "question": question}


def verdict(equal: bool) -> Reward:
    """The reward of an answer that could be read."""
    parts = {"format": 1.0, "answer": float(equal)}
    return Reward(float(equal), parts, outcome=RIGHT if equal else WRONG)


def unreadable(why: str = "no final answer", outcome: str = NO_ANSWER) -> Reward:
    """The reward of a text without a final answer, or without one that can be read."""
    return Reward(0.0, {"format": 0.0, "answer": 0.0}, why, outcome)


def read_accuracy(row: Row, completion: Completion, value: Mapping[str, Any]) -> Reward:
    """The reward from `judging.judge`'s verdict.

    Parts: format (there is a final answer that can be read), answer (it is right) and, where
    math-verify came to a verdict, DIFFERS. `why` is the rule that made the difference.
    Abstains when the gold answer cannot be read.
    """
    if not value["gold_read"]:
        return Reward(None, why=f"the gold answer cannot be parsed: {gold_answer(row)[:80]}")
    answer = answer_of(completion)
    if answer is None:
        return unreadable()
    unread = unreadable("the final answer cannot be parsed", UNPARSABLE)
    reward = with_answer(verdict(value["equal"]) if value["answer_read"] else unread, answer)
    own = value["math_verify"]
    if own is None:
        return reward
    parts = {**reward.parts, DIFFERS: float(own != value["equal"])}
    why = reward.why or (f"by the rule: {value['rule']}" if own != value["equal"] else "")
    return replace(reward, parts=parts, why=why)


def failed_accuracy(row: Row, completion: Completion, failure: CallOutcome) -> Reward:
    """0 for an answer that made the comparison fail; its `format` is 0 too."""
    reward = earned(0.0, {"format": 0.0, "answer": 0.0}, failure)
    return with_answer(reward, answer_of(completion))


accuracy = WorkerReward(
    JUDGE,
    ask_accuracy,
    read_accuracy,
    failed=failed_accuracy,
    gold=gold_completion,
    outcomes=READ,
)
"""1 when the final answer equals the gold answer, else 0."""


def _ask_olympiad(row: Row, completion: Completion) -> Reward | Mapping[str, Any]:
    try:
        tolerances = allowed_errors(row)
    except ValueError:
        return Reward(None, why=f"the row's `error` is no tolerance: {row.extra.get('error')!r}")
    question = ask_accuracy(row, completion)
    several = bool(row.extra.get("is_multiple_answer"))
    if isinstance(question, Reward):
        wrong = question.outcome == WRONG
        # Equal or not as plain numbers, they may be lists, or within a tolerance.
        if not (wrong and tolerances) and not (several and (wrong or question.outcome == RIGHT)):
            return question
    unit = str(row.extra.get("unit") or "")
    texts = {"gold": gold_answer(row), "answer": answer_of(completion) or ""}
    return {**texts, "tolerances": tolerances, "unit": unit, "several": several}


def allowed_errors(row: Row) -> list[float | None]:
    """The absolute tolerances in a row's `error`, such as "1e-1" or "1e-3,1e-2"; None for the
    judge's own. Raises ValueError."""
    parts = str(row.extra.get("error") or "").split(",")
    return [float(part) if part.strip() else None for part in parts] if any(parts) else []


olympiad_accuracy = replace(accuracy, worker=OLYMPIAD_JUDGE, ask=_ask_olympiad)
"""1 when the final answer equals the gold answer by OlympiadBench's rules, else 0.

A row's `extra` may hold `error`, `unit` and `is_multiple_answer` as in OlympiadBench's files.
"""

REWARDS: Mapping[str, RewardFunction] = {
    "accuracy": accuracy,
    "olympiad": olympiad_accuracy,
    "cosine": cosine_scaled(accuracy, max_length=1024),
    "think_format": think_format,
    "repetition": repetition_penalty(),
}
REWARD_MAXIMUM: Mapping[str, float] = {"repetition": 0.0}
