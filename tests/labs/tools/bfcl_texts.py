"""Texts that a model might write for an entry of BFCL, right and spoiled in many ways, by a seed.

Upstream evaluates the calls of dialogues as Python: nothing here would do anything there.
"""

import json
import random
from collections.abc import Sequence
from typing import Any

from assay.data.row import Row, ToolCall
from assay.labs.tools.multi_turn import STEP_LIMIT, is_multi_turn, truth_messages
from assay.labs.tools.parsing import PythonCall
from assay.labs.tools.single_turn import target_calls

Calls = Sequence[ToolCall]
Value = dict[str, Any]
Random = random.Random

OPEN, CLOSE = "<tool_call>\n", "\n</tool_call>"
THOUGHTS = [
    "<think>\n{}\n</think>\n\n",
    "<think>{}</think>",
    "{}\n</think>\n\n",
    "<think>\na\n</think>\n\n<think>\n{}\n</think>\n\n",
    "<think>\n<think>\n{}\n</think>\nb\n</think>\n\n",
    "<think>\n{}\n</think>\n\nSo </think> is how it ends.\n",
]
WORDS = ["", " ", "\n", "Of course.\n", "I cannot.", "</tool_call>", "<tool_call>", "<tool_call>\n"]
WORDS += ["ls()", "[ls()]", "\ufeff", "é\u2028", "\x00", "```json\n", "\n```", "<|im_end|>", "{}"]
VALUES = [None, True, 0, -1, 1.0, 2.5, 10**310, float("nan"), float("inf"), "", "x", "1"]
VALUES += [[], {}, [1, "a"], {"a": {"b": [None]}}, "é", "\ud800", "<tool_call>", "</think>", "ls()"]
NAMES = [None, 5, True, 1.5, "", "nothing", "os.getcwd", "é", "ﬁnd", "_private", "lambda", "a b"]
NAMES += [["ls"], {"a": 1}, "("]
SHAPES = ["{} ", " {}", "\n{}", "{}\n", "({})", "{} #", "{}()", "module.{}", "GorillaFileSystem.{}"]
SHAPES += ["{}(1),", "\t{}", "{}\\"]


def value_of(call: ToolCall) -> Value:
    """A call as the object between its tags."""
    return {"name": call.name, "arguments": dict(call.arguments)}


def dumped(value: Any) -> str:
    """A block of one value."""
    return f"{OPEN}{json.dumps(value)}{CLOSE}"


def blocks(calls: Calls) -> list[str]:
    """Each call in its tags."""
    return [dumped(value_of(call)) for call in calls]


def other_values(value: Value, rng: Random) -> list[Any]:
    """The object with one thing in it changed, or something else in its place."""
    name, arguments = value["name"], dict(value["arguments"])
    key = rng.choice(sorted(arguments)) if arguments else "a"
    return [
        *({**value, "name": other} for other in NAMES),
        *({**value, "arguments": {**arguments, key: other}} for other in VALUES),
        *({**value, "arguments": other} for other in VALUES),
        *({"name": other.format(name), "arguments": arguments} for other in SHAPES),
        {**value, "name": name.replace(".", "_")},
        {**value, "arguments": {**arguments, "unheard_of": rng.choice(VALUES)}},
        {**value, "arguments": {k: v for k, v in arguments.items() if k != key}},
        {**value, "arguments": {f"{k}=1,{k}": v for k, v in arguments.items()}},
        {**value, "arguments": {k.upper(): v for k, v in arguments.items()}},
        {**value, "arguments": {k: str(v) for k, v in arguments.items()}},
        {**value, "arguments": json.dumps(arguments)},
        {**value, "arguments": str(arguments)},
        {**value, "arguments": [arguments]},
        {**value, "parameters": 1},
        {"name": name},
        {"name": name, "parameters": arguments},
        {"function": value},
        [value],
        *VALUES,
    ]


def other_blocks(value: Value, rng: Random) -> list[str]:
    """The block of the object, damaged."""
    text, inner = dumped(value), json.dumps(value)
    cut = rng.randrange(len(inner))
    return [
        text.replace("\n", ""),
        text.replace("\n", "\r\n"),
        text.replace(OPEN, "<tool_call> \n"),
        text.replace(OPEN, OPEN + "\n").replace(CLOSE, "\n" + CLOSE),
        text.replace(CLOSE, ""),
        text.replace(OPEN, ""),
        text.replace(OPEN, OPEN + OPEN).replace(CLOSE, CLOSE + CLOSE),
        text.replace('"arguments"', '"x": "\n</tool_call>", "arguments"'),
        text.replace('"arguments"', '"x": "</think>", "arguments"'),
        f"<tool_call>{CLOSE}{text}",
        f"{OPEN}{inner[:cut]}{CLOSE}",
        f"{OPEN}{inner[:cut]}{inner[cut + 1 :]}{CLOSE}",
        f"{OPEN}{inner[:cut]}",
        f"{OPEN}{value!r}{CLOSE}",
        f"{OPEN}{inner}\n{inner}{CLOSE}",
        f"{OPEN}// call\n{inner}{CLOSE}",
        f"{OPEN}```json\n{inner}\n```{CLOSE}",
        f"{OPEN}{json.dumps(value, indent=2)}{CLOSE}",
        f"{OPEN}{inner.replace(': ', ': <tool_call>', 1)}{CLOSE}",
        OPEN + inner.replace("{", '{"x": ' + "1" * 5000 + ", ", 1) + CLOSE,
        OPEN + inner.replace("{", '{"name": "other", ', 1) + CLOSE,
        OPEN + inner.replace("{", '{"x": ' + "[" * 150 + "]" * 150 + ", ", 1) + CLOSE,
        f"```json\n{inner}\n```",
        inner,
        f"[{PythonCall(value['name'], (), value['arguments']).source}]",
    ]


def answer(calls: Calls, rng: Random, number: int) -> str:
    """An answer that makes the calls, or nearly; the number says how one of them is spoiled."""
    texts = blocks(calls)
    place = rng.randrange(len(calls)) if calls else 0
    if calls and number >= 0:
        value = value_of(calls[place])
        spoiled = [*map(dumped, other_values(value, rng)), *other_blocks(value, rng)]
        texts[place] = spoiled[number % len(spoiled)]
    kind = rng.randrange(8)
    if kind == 0:
        texts.insert(place, dumped(rng.choice([*VALUES, {"name": "nothing", "arguments": {}}])))
    elif kind == 1 and texts:
        texts = rng.choice([texts * 2, texts[:-1], texts[::-1], [*texts, texts[place]]])
    elif kind == 2:
        texts.insert(place, rng.choice(WORDS))
    text = rng.choice(["\n", "", " "]).join(texts)
    if rng.random() < 0.3:
        draft = rng.choice(
            ["Easy.", text, "".join(blocks(calls)), "Use <tool_call> tags.", "<tool"]
        )
        text = rng.choice(THOUGHTS).replace("{}", draft) + text
    return text + rng.choice(WORDS) if rng.random() < 0.1 else text


def single(row: Row, rng: Random, number: int) -> str:
    """An answer to an entry with one question."""
    names = [doc["name"] for doc in row.tools] or ["nothing"]
    calls = target_calls(row) if row.gold else [ToolCall(rng.choice(names), {"a": 1})]
    return answer(calls if row.gold or rng.random() < 0.8 else [], rng, number)


def dialogue(row: Row, rng: Random, number: int) -> list[str]:
    """The messages of a dialogue that makes the calls of the truth, or nearly."""
    said, most = [], rng.choice([0, 1, 4, 4])
    for turn, message in enumerate(truth_messages(row)):
        calls = message.tool_calls
        if not calls:
            said.append(rng.choice(["Done.", "", "<think>\nls\n</think>\n\nDone."]))
            continue
        if rng.random() < 0.01:
            said += [answer(calls[:1], rng, -1)] * (STEP_LIMIT + 1)
        # An answer without calls ends the turn, so that what follows is said in the next one.
        said += [
            answer(calls, rng, number * 31 + turn * 4 + n) for n in range(rng.randint(0, most))
        ]
        said.append("".join(blocks(calls)))
    return said


def cases(rows: Sequence[Row], every: int, texts: int, seed: str) -> list[list[Any]]:
    """Index and text of every so many entries, several texts of each."""
    write = dialogue if is_multi_turn(rows[0]) else single
    places = [(index, n) for index in range(0, len(rows), every) for n in range(texts)]
    start = random.Random(seed).randrange(1000)
    return [
        [index, write(rows[index], random.Random(f"{seed} {index} {n}"), start + number)]
        for number, (index, n) in enumerate(places)
    ]
