"""What the policy and the judge of these environments say to what they read."""

import re
from typing import Any


def answer(text: str, tools: bool) -> str | dict[str, Any]:
    """Calls `add` where it may and tells what it gave; else right for even numbers, and for odd
    ones once it is told."""
    a, b = re.findall(r"What is (\d+) \+ (\d+)\?", text)[-1]
    if tools:
        results = re.findall(r"tool\W+(?:.*\D)?(\d+)", text)
        call = {"name": "add", "arguments": {"a": int(a), "b": int(b)}}
        return results[-1] if results else call
    told = re.findall(r"Wrong: it is (\d+)\.", text)
    return told[-1] if told else str(2 * int(a)) if int(a) % 2 == 0 else "7"


def grade(text: str) -> str:
    """Yes to what is right."""
    said, a, b = re.findall(r"Is (\d+) right for What is (\d+) \+ (\d+)\?", text)[-1]
    return "yes" if int(said) == int(a) + int(b) else "no"
