"""A built-in reward gives the values of its version: fingerprints of runs name the version alone.

Where a value changes on purpose, raise the reward's number in `reward_versions` of its task, and
write the new values with `python -m tests.tasks.test_reward_versions`.
"""

import json
from pathlib import Path
from typing import Any

from assay.data.episode import Completion
from assay.data.row import Message, Row, ToolCall
from assay.labs.chat.task import TASK as CHAT
from assay.labs.math.task import TASK as MATH
from assay.labs.tools.parsing import call_text
from assay.labs.tools.single_turn import entries
from assay.labs.tools.task import TASK as TOOLS
from assay.tasks.running import RewardRunner
from assay.tasks.task import BaseTask, reward, reward_version
from tests.few import few

FILE = Path(__file__).with_name("reward_values.json")
CALLS = (ToolCall("f", {"a": 1}), ToolCall("g", {"b": ["x", "y"]}))
THINK = "<think>\nLet me see.\n</think>\n\n"


def answers(*texts: str) -> list[str]:
    """The texts, bare and after a thought."""
    return [*texts, *(THINK + text for text in texts), ""]


MATH_ANSWERS = answers(
    *(rf"The answer is \boxed{{{each}}}." for each in (r"\frac{1}{2}", "0.5", "2", "1/2, 3", "x")),
    *(r"\boxed{\frac12", "It is 1/2.", "so so so so so so so so"),
)
TOOL_ANSWERS = answers(
    *(call_text(calls) for calls in (CALLS, CALLS[::-1], CALLS[:1], (*CALLS, CALLS[0]))),
    call_text((ToolCall("f", {"a": "1"}), CALLS[1])),
    *("<tool_call>\n{}\n</tool_call>", "f(a=1)", f"Of course.\n{call_text(CALLS)}"),
)
CHAT_ANSWERS = answers('{"a": 1}', '{"a": 1.0, "b": 2}', "a", '```json\n{"a": 1}\n```', "[1")


def tokens_of(text: str) -> tuple[int, ...]:
    """A token for each word."""
    return tuple(sum(word.encode()) for word in text.split())


def row(gold: Any, **more: Any) -> Row:
    return Row("r", (Message("user", "?"),), gold=gold, **more)


TRIANGLE = '<tool_call>\n{"name": "calculate_triangle_area", "arguments": {%s}}\n</tool_call>'
TRIANGLES = answers(
    *(TRIANGLE % each for each in ('"base": 10, "height": 5', '"base": 10, "height": "5"', "")),
    *(TRIANGLE % f'"base": 10, "height": 5, {each}' for each in ('"unit": "miles"', '"c": 1')),
)

BATTERY: dict[str, tuple[BaseTask, list[Row], list[str]]] = {
    "math": (MATH, [row(r"\frac{1}{2}"), row("2"), row("(1, 3)")], MATH_ANSWERS),
    "tools": (TOOLS, [row(call_text(CALLS)), row(call_text(CALLS[:1]))], TOOL_ANSWERS),
    "tools.ast": (TOOLS, [entries("simple_python")[0]], TRIANGLES),
    "chat": (CHAT, [row('{"a": 1}'), row("a")], CHAT_ANSWERS),
}
ASKED = {
    "math": ("accuracy", "olympiad", "cosine", "think_format", "repetition"),
    "tools": ("ast", "fine_grained", "strict_binary", "strict_binary_think"),
    "chat": ("exact_match", "contains", "json_equal"),
}
NAMES = [f"{task}.{name}" for task, names in ASKED.items() for name in names]
DEAR = ("math.olympiad", "math.cosine")
"""Each starts a checker of its own."""


def values(name: str) -> dict[str, Any]:
    """The version of a reward, and its values and outcomes on the battery."""
    task, rows, texts = BATTERY.get(name) or BATTERY[name.partition(".")[0]]
    pairs = [(each, Completion(text, tokens_of(text))) for each in rows for text in texts]
    with RewardRunner(reward(task, name), 60.0, workers=1) as runner:
        scored = runner.score(pairs)
    return {
        "version": reward_version(task, name),
        "values": [[each.value, each.outcome] for each in scored],
    }


@few("name", sorted(NAMES, key=DEAR.__contains__), fast=len(NAMES) - len(DEAR))
def test_a_reward_gives_the_values_of_its_version(name):
    recorded = json.loads(FILE.read_text(encoding="utf-8"))[name]
    now = values(name)
    same = now["values"] == recorded["values"]
    assert same or now["version"] > recorded["version"], "another value: raise the version"
    assert now == recorded, "another version: write the values of it"
    assert len({str(each) for each in now["values"]}) > 1


if __name__ == "__main__":
    lines = ",\n".join(f'"{name}": {json.dumps(values(name))}' for name in NAMES)
    FILE.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
