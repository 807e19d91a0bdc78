"""Prompts for a teacher too small to follow instructions: it goes on as three examples do."""

import json
import re

from assay.data.leakage import question
from assay.data.row import Message, Row

SUMS = [
    (
        "Ann has 4 pens and buys 3 more. How many pens has she now?",
        "Leo has 6 coins and finds 5 more. How many coins has he now?",
        "6 + 5 = 11. The answer is \\boxed{11}.",
        "11",
    ),
    (
        "A bus has 30 seats. 12 of them are taken. How many are free?",
        "A shelf holds 25 books. 9 of them are lent. How many are left?",
        "25 - 9 = 16. The answer is \\boxed{16}.",
        "16",
    ),
    (
        "There are 5 boxes with 8 eggs each. How many eggs are there?",
        "There are 7 bags with 4 apples each. How many apples are there?",
        "7 x 4 = 28. The answer is \\boxed{28}.",
        "28",
    ),
]
FUNCTIONS = [
    (
        {"name": "get_time", "parameters": {"city": {"type": "string"}}},
        "What time is it in Rome?",
        {"name": "get_time", "arguments": {"city": "Rome"}},
    ),
    (
        {"name": "add", "parameters": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
        "Add 17 and 25, please.",
        {"name": "add", "arguments": {"a": 17, "b": 25}},
    ),
]


def another_sum(seed: Row, sample: int) -> list[Message]:
    """A problem like the seed."""
    shown = []
    for given, made, steps, answer in SUMS:
        wrote = f"<question>{made}</question>\n<solution>{steps}</solution>\n"
        shown += [_asks(given), Message("assistant", f"{wrote}<answer>{answer}</answer>")]
    return [*shown, _asks(question(seed))]


def _asks(problem: str) -> Message:
    return Message("user", f"Write a new problem like this one: {problem}")


def a_call(seed: Row, sample: int) -> list[Message]:
    """A question that a call of the seed's first function answers."""
    shown = []
    for tool, asked, call in FUNCTIONS:
        shown += [_described(tool), Message("assistant", tagged(asked, call))]
    return [*shown, _described(dict(seed.tools[0]))]


def _described(tool: dict) -> Message:
    return Message("user", f"Write a question and its call of this function: {json.dumps(tool)}")


def tagged(asked: str, call: dict) -> str:
    """A row as the examples write it."""
    return f"<query>{asked}</query>\n<answers>[{json.dumps(call)}]</answers>"


def tagged_objects(seed: Row, text: str) -> list[dict[str, str]]:
    """The objects of a text such as `<question>...</question><answer>...</answer>`: a name that
    comes again begins the next one."""
    objects: list[dict[str, str]] = []
    for name, value in re.findall(r"(?s)<([a-z_]{1,40})>(.*?)</\1>", text):
        if not objects or name in objects[-1]:
            objects.append({})
        objects[-1][name] = value.strip()
    if not objects:
        raise ValueError("holds no <tag>text</tag>")
    return objects
