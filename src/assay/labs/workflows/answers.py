r"""Whether the answer of a workflow program is right: by the type of its problem.

math   the math task's own rules, over math-verify in a worker
code   hidden tests, run in the sandbox; right if all pass
qa     exact match and token F1 by the scripts of HotpotQA and DROP

The lab compares; nothing that a program returns is run here.
"""

import ast
import atexit
import queue
import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache

from assay.data.episode import Completion, Reward
from assay.data.formats.problem_rows import ENTRY_POINT, GIVEN, PROBLEM_TYPE, SCORING, TESTS
from assay.data.row import Row
from assay.labs.math.rewards import accuracy, answer_of
from assay.labs.workflows.programs.program import PYTHON, fenced_blocks
from assay.sandbox.isolation import Mode, chosen_isolation
from assay.sandbox.limits import CallLimits, CallOutcome, Limits
from assay.sandbox.pool import WorkerPool
from assay.tasks.running import RewardRunner

ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = frozenset(string.punctuation)
ALONE = frozenset({"yes", "no", "noanswer"})


def agreement(answer: str, truths: Sequence[str], rules: str = "hotpotqa") -> float:
    """How far an answer agrees with the right one that it agrees with most: F1 from 0 to 1.

    Raises KeyError for unknown rules.
    """
    return max(RULES[rules](answer, each) for each in truths)


def normalised(text: str) -> str:
    """Small letters without punctuation, articles and extra spaces (SQuAD's evaluation script)."""
    kept = "".join(char for char in text.lower() if char not in PUNCTUATION)
    return " ".join(ARTICLES.sub(" ", kept).split())


def hotpotqa(answer: str, truth: str) -> float:
    """By `hotpot_evaluate_v1.py` (as SQuAD): words count as often as they occur; yes, no and
    noanswer count only where they are all of an answer. Two texts without a word do not agree."""
    text, wanted = normalised(answer), normalised(truth)
    if text == wanted or {text, wanted} & ALONE:
        return float(text == wanted != "")
    return f1(Counter(text.split()), Counter(wanted.split()))


def drop(answer: str, truth: str) -> float:
    """By `drop_eval.py` (allenai/allennlp-reading-comprehension): words count once, hyphens part
    them, numbers are compared as numbers, and an answer without any of the numbers of the right one
    scores 0. A text is one answer: several spans are not aligned, and F1 is not rounded. Two texts
    without a word do not agree."""
    words, wanted = drop_words(answer), drop_words(truth)
    numbers = set(filter(is_number, wanted))
    if words == wanted or (numbers and not numbers & {*words}):
        return float(words == wanted != [])
    return f1(Counter({*words}), Counter({*wanted}))


def drop_words(text: str) -> list[str]:
    """The words of a text as DROP compares them: 7.0 of "7", "2 000" stays two."""
    words = []
    for token in re.split(r"[ -]", text.lower()):
        bare = token if is_number(token) else "".join(c for c in token if c not in PUNCTUATION)
        number = str(float(bare)) if is_number(bare) else bare
        words += ARTICLES.sub(" ", number).split()
    return words


def is_number(text: str) -> bool:
    """Whether Python reads a text as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def f1(one: Counter[str], other: Counter[str]) -> float:
    """The harmonic mean of precision and recall; 0 where nothing is shared."""
    shared = (one & other).total()
    return 2 * shared / (one.total() + other.total()) if shared else 0.0


RULES: Mapping[str, Callable[[str, str], float]] = {"hotpotqa": hotpotqa, "drop": drop}
"""By the benchmark whose script they follow."""


TEST_SECONDS = 20.0
CODE_WORKERS = 2
PROGRAM_LIMITS = Limits(cpu_seconds=20, memory_bytes=1 << 30, processes=8)


@cache
def workers(
    function: str, isolation: Mode, size: int = CODE_WORKERS, calls: CallLimits | None = None
) -> WorkerPool:
    """The workers of a function, which end with this process."""
    pool = WorkerPool(function, size, PROGRAM_LIMITS, isolation, calls=calls)
    atexit.register(pool.close)
    return pool


def run_code(program: str, function: str, deadline: float) -> CallOutcome:
    """What a function of a Python program returns in the sandbox; see `program.call_function`."""
    pool = workers("assay.sandbox.tested_code:call_function", chosen_isolation())
    return pool.map([{"program": program, "name": function}], deadline)[0]


def passed(code: str, tests: Sequence[str], entry_point: str) -> tuple[int, str]:
    """How many tests pass that code, in the sandbox, and why the first one fails; what the code
    does to its process is its own doing, and a failure. See `tested_code.run_tests`."""
    request = {"answer": code, "tests": list(tests), "entry_point": entry_point}
    pool = workers("assay.sandbox.tested_code:run_tests", chosen_isolation())
    done = pool.map([request], TEST_SECONDS)[0]
    if done.failure is not None:
        return 0, f"{done.failure}: {done.why}"
    return done.value["passed"], str(done.value["failure"])


ALTERNATIVES = "|"
"""Between right answers, as AFlow's DROP rows have them. The bars of an answer are text: one that
lists several answers has none of them."""
MATH_WORKERS = 2


Judged = tuple[float | None, str]
"""What an answer is worth, 0 to 1, and why it is not right; only a question's answer may lie
between. None where the lab could not judge it: the reward abstains."""


def judge_answer(row: Row, answer: str) -> Judged:
    """The verdict on a program's answer."""
    kind = row.extra[PROBLEM_TYPE]
    if kind == "code":
        code = code_in(answer, row.extra[ENTRY_POINT], row.extra.get(GIVEN) or "")
        count, why = passed(code, row.extra[TESTS], row.extra[ENTRY_POINT])
        return float(0 < count == len(row.extra[TESTS])), why
    if kind == "qa":
        rules = row.extra.get(SCORING) or "hotpotqa"
        return agreement(answer, str(row.gold).split(ALTERNATIVES), rules), ""
    completion = Completion(answer)
    # A line that holds no final answer is one itself.
    if answer_of(completion) is None and len(answer.strip().splitlines()) == 1:
        completion = Completion(f"\\boxed{{{answer.strip()}}}")
    reward = _math_reward(row, completion)
    return reward.value, reward.why


def code_in(answer: str, entry_point: str, prefix: str = "") -> str:
    """The Python of an answer, under the code that the problem gives.

    Of several fenced blocks the first that defines the function, else all that may be Python, else
    all. An unfenced answer is code as a whole.
    """
    blocks = fenced_blocks(answer)
    python = [block.code for block in blocks if block.language in PYTHON]
    every = [block.code for block in blocks]
    defining = (code for code in (*python, *every) if defines(code, entry_point))
    code = next(defining, "\n".join(python or every)) if blocks else answer
    # Imports from the future stand first; what they are for makes annotations wait for the rest.
    first, then = (code, prefix) if "from __future__" in code else (prefix, code)
    return f"{first}\n{then}" if prefix else code


def defines(code: str, name: str) -> bool:
    """Whether Python code binds a name at its top."""
    try:
        body = ast.parse(code).body
    except (SyntaxError, ValueError):
        return False
    bound = {getattr(node, "name", None) for node in body}
    assigned = [node.targets[0] for node in body if isinstance(node, ast.Assign)]
    return name in bound | {each.id for each in assigned if isinstance(each, ast.Name)}


def _math_reward(row: Row, completion: Completion) -> Reward:
    """The reward of the math task. Its worker takes a second to start and serves many answers."""
    runners = _math_runners(chosen_isolation())
    runner = runners.get()
    try:
        return runner.score([(row, completion)])[0]
    finally:
        runners.put(runner)


@cache
def _math_runners(isolation: Mode) -> "queue.LifoQueue[RewardRunner]":
    runners: queue.LifoQueue[RewardRunner] = queue.LifoQueue()
    for _ in range(MATH_WORKERS):
        runner = RewardRunner(accuracy, workers=1, sandbox=isolation)
        atexit.register(runner.close)
        runners.put(runner)
    return runners
