"""Whether the answer of a workflow program is right: by the type of its problem.

math   the math task's own rules, over math-verify in a worker
code   hidden tests, run in the sandbox; right if all pass
qa     exact match and token F1 by the rules of SQuAD, HotpotQA and DROP
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from assay.data.episode import Completion
from assay.data.row import Row
from assay.sandbox.limits import Outcome
from assay.tasks.math.rewards import accuracy
from assay.tasks.running import RewardRunner
from assay.tasks.workflows.problems import ENTRY_POINT, PROBLEM_TYPE, TESTS

TestRunner = Callable[[str, Sequence[str], str], Outcome]
"""Runs (code, tests, entry point) in the sandbox, see `tested_code.run_tests`."""
ARTICLES = re.compile(r"\b(a|an|the)\b")
ALTERNATIVES = "|"
"""Between right answers, as AFlow's DROP rows have them."""


class NoVerdict(Exception):
    """The lab could not judge an answer: the reward abstains."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What an answer is worth."""

    score: float
    """0 to 1."""
    why: str = ""


def judge_answer(row: Row, answer: str, tests: TestRunner) -> Judged:
    """The verdict on a program's answer. Raises NoVerdict."""
    kind = row.extra[PROBLEM_TYPE]
    if kind == "code":
        return judge_code(row, answer, tests)
    if kind == "qa":
        return judge_text(answer, str(row.gold).split(ALTERNATIVES))
    return judge_math(row, answer)


def judge_code(row: Row, answer: str, run: TestRunner) -> Judged:
    """1 where all hidden tests pass, else 0 and why the first one fails. What the code does to its
    process is its own doing, and a failure."""
    tests: Sequence[str] = row.extra[TESTS]
    done = run(answer, tests, row.extra[ENTRY_POINT])
    if done.failure is not None:
        return Judged(0.0, f"{done.failure}: {done.why}")
    passed = done.value["passed"]
    return Judged(float(passed == len(tests)), done.value["failure"])


def judge_math(row: Row, answer: str) -> Judged:
    """1 where the final answer of a text equals the gold answer, by `math.rewards.accuracy`."""
    with RewardRunner(accuracy, workers=1) as runner:
        (found,) = runner.score([(row, Completion(answer))])
    if found.value is None:
        raise NoVerdict(found.why)
    return Judged(found.value, found.why)


def judge_text(answer: str, truths: Sequence[str]) -> Judged:
    """Token F1 of the best of several right answers; 1 for an exact match."""
    return Judged(max(f1(answer, truth) for truth in truths))


def normalised(text: str) -> str:
    """Small letters without punctuation, articles and extra spaces (SQuAD's evaluation script)."""
    kept = "".join(char for char in text.lower() if char not in string.punctuation)
    return " ".join(ARTICLES.sub(" ", kept).split())


def f1(answer: str, truth: str) -> float:
    """The harmonic mean of precision and recall of words. yes, no and noanswer count only where
    they are all of an answer (HotpotQA's evaluation script)."""
    given, wanted = normalised(answer), normalised(truth)
    if given == wanted:
        return float(bool(wanted))
    if {given, wanted} & {"yes", "no", "noanswer"}:
        return 0.0
    one, other = given.split(), wanted.split()
    shared = sum((Counter(one) & Counter(other)).values())
    return 2 * shared / (len(one) + len(other)) if shared else 0.0
